import ACMEProvider
import CertificateProviding
import Foundation
import IdentityStore
import PKCS11TokenProvider
import PluginKit
import RemoteMDMProvider
import TestSupport

/// The plugins of the tests, by the argument: built-in providers and key stores, and one of its own.
@main struct TestPlugin {
    static func main() async {
        switch CommandLine.arguments.dropFirst().first {
        case "acme": await Plugin(ACMEProvider.descriptor, abilities: [.advice, .revocation]).run()
        case "guarded": await Plugin(GuardedProvider.descriptor).run()
        case "large": await Plugin(LargeDataProvider.descriptor).run()
        case "mdm": await Plugin(RemoteMDMProvider.descriptor).run()
        case "transcript": await TranscriptProvider.plugin(CommandLine.arguments.last ?? "").run()
        case "pkcs11": await Plugin(PKCS11TokenProvider.descriptor, keyStores: [TokenKeyStore.descriptor]).run()
        // One request at a time, as the plainest plugins do: a host that asks for a signature while a key is made waits
        // for itself.
        default: await Plugin(id: ProviderID("keys"), keyStores: [RenamedKeyStore.descriptor], concurrency: 1).run()
        }
    }
}

/// The key store `store:` with the scheme `keys`.
private final class RenamedKeyStore: KeyStore {
    static var descriptor: KeyStoreDescriptor {
        KeyStoreDescriptor(
            scheme: "keys", id: ProviderID("keys"), displayName: "Keys", summary: "Keys in the host's store.",
            parameters: [directory.descriptor, mode.descriptor]
        ) { environment, location, parameters in
            RenamedKeyStore(
                SealedKeyStore(environment: environment), parameters[directory],
                Int(parameters[mode] ?? "600", radix: 8) ?? 0)
        }
    }

    private static let directory = Parameter<String?>.string(
        "directory", .path, summary: "Each label becomes the name of a file there, as it must not.")
    private static let mode = Parameter<String?>.string("mode", .string, summary: "The mode of these files.")

    private let store: SealedKeyStore
    private let directory: String?
    private let mode: Int
    private init(_ store: SealedKeyStore, _ directory: String?, _ mode: Int) {
        (self.store, self.directory, self.mode) = (store, directory, mode)
    }

    var properties: KeyStoreProperties {
        KeyStoreProperties(
            scheme: "keys", location: KeyLocation(rawValue: "keys"), makes: store.makes, importsKeys: true)
    }

    private func inner(_ uri: String) -> String { "store" + uri.dropFirst("keys".count) }
    private func inner(_ key: KeyReference) -> KeyReference {
        KeyReference(publicKey: key.publicKey, uri: inner(key.uri))
    }

    /// A URI that names no key of the store, such as that of the store itself, finds none.
    private func named(_ key: KeyReference) -> Bool { key.uri.isEmpty || holds(keyURI: key.uri) }

    /// A key that stays in the plugin.
    private static func renamed(_ key: any IdentityKey) -> any IdentityKey {
        TestKey(
            key, location: KeyLocation(rawValue: "keys"), uri: key.uri.map { "keys" + $0.dropFirst("store".count) },
            use: key.use, decrypter: key.decrypter, digestSigner: key.digestSigner)
    }

    func holds(keyURI: String) -> Bool { keyURI.hasPrefix("keys:") && store.holds(keyURI: inner(keyURI)) }

    func check(_ interaction: any UserInteraction) async throws(ProviderError) {
        try await store.check(interaction)
    }

    func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        try properties.check(new)
        if let directory {
            _ = FileManager.default.createFile(
                atPath: "\(directory)/\(new.label)", contents: nil, attributes: [.posixPermissions: mode])
        }
        return Self.renamed(
            try await store.make(new, interaction) { key throws(ProviderError) in
                try await remember(Self.renamed(key))
            })
    }

    func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? {
        try named(key) ? await store.key(for: inner(key), interaction).map(Self.renamed) : nil
    }

    func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        try named(key) ? store.storedKey(for: inner(key)).map(Self.renamed) : nil
    }

    func list() async throws(ProviderError) -> [KeyDescription] {
        try await store.list().map { key in
            let reference = KeyReference(
                publicKey: key.reference.publicKey, uri: "keys" + key.reference.uri.dropFirst("store".count))
            return KeyDescription(reference, label: key.label, location: location)
        }
    }

    func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool { try await store.destroy(inner(key), interaction) }

    func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool {
        try store.destroyStored(inner(key))
    }
}

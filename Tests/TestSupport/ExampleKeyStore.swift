public import CertificateProviding
import Synchronization

/// A key store in memory with every ability that a key store can have. The URI of a key is `SCHEME:LABEL`.
public final class ExampleKeyStore: KeyStore, CertificateStoring {
    private struct Entry: Sendable {
        let key: TestKey
        let label: String
        var chain: [X509Certificate] = []
    }
    /// The shared entries of all stores of one descriptor.
    private final class Entries: Sendable { let all = Mutex<[String: Entry]>([:]) }

    private static let tpm = Result { try InventedTPM() }
    private static let generator = BlockingExecutor.threads()
    private let place: KeyStoreLocation
    private let entries: Entries
    private let environment: ProviderEnvironment

    private init(_ place: KeyStoreLocation, _ entries: Entries, _ environment: ProviderEnvironment) {
        (self.place, self.entries, self.environment) = (place, entries, environment)
    }

    /// - Parameter id: Also the scheme.
    public static func descriptor(_ id: ProviderID) -> KeyStoreDescriptor {
        let entries = Entries()
        return KeyStoreDescriptor(
            scheme: id.rawValue, id: id, displayName: "Vault keys", summary: "Keys that stay in the vault.",
            parameters: []
        ) { environment, place, _ in ExampleKeyStore(place, entries, environment) }
    }

    public var properties: KeyStoreProperties {
        KeyStoreProperties(
            scheme: place.scheme, location: .token,
            makes: [.p256: .signing, .rsa2048: [.signing, .pkcs1Decryption, .oaepDecryption]], importsKeys: true,
            attestsKeys: true, guarantees: [.neverExportable])
    }
    public var certificates: (any CertificateStoring)? { self }

    public func holds(keyURI: String) -> Bool { keyURI.hasPrefix("\(scheme):") }

    private func entry(_ key: KeyReference) -> Entry? {
        entries.all.withLock { $0[key.uri] }.flatMap { $0.key.publicKey == key.publicKey ? $0 : nil }
    }

    public func check(_ interaction: any UserInteraction) async throws(ProviderError) {
        if let source = place.pinSource {
            _ = try await environment.secret(from: source, prompt: "The PIN of \(scheme)", interaction: interaction)
        }
    }

    public func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        try properties.check(new)
        if new.type != nil { try await check(interaction) }
        // RSA takes seconds, during which tasks would have one thread less.
        let made = try await Self.generator.run { () throws(ProviderError) in
            try SoftwareKey(new, location: .token)
        }
        let (label, uri) = (new.label, "\(scheme):\(new.label)")
        // As in a device, RSA takes its time.
        let isSlow = made.publicKey.algorithm == .rsa
        let key = TestKey(
            made, uri: uri, timeout: isSlow ? .seconds(30) : nil, decrypter: made.decrypter,
            digestSigner: isSlow ? made.digestSigner : nil,
            attester: isSlow ? try? Self.tpm.get().attester(of: made.publicKey) : nil)
        try await remember(key)
        entries.all.withLock { $0[uri] = Entry(key: key, label: label) }
        return key
    }

    public func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? { try storedKey(for: key) }

    public func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        entry(key)?.key
    }

    public func list() async throws(ProviderError) -> [KeyDescription] {
        entries.all.withLock(\.self).sorted { $0.key < $1.key }.map { uri, entry in
            KeyDescription(
                KeyReference(publicKey: entry.key.publicKey, uri: uri), label: entry.label, location: location)
        }
    }

    public func identity(
        _ uri: String, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        guard let entry = entries.all.withLock({ $0[uri] }) else {
            throw ProviderError(.notFound, "The key store has no key '\(uri)'.")
        }
        return try Identity(
            certificateChain: entry.chain, key: entry.key,
            provenance: .init(provider: ProviderID("example"), alias: entry.label, source: "\(scheme):"))
    }

    public func storeChain(
        _ chain: [X509Certificate], for key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        let identity = try Identity(
            certificateChain: chain, key: key, provenance: .init(provider: ProviderID("example")))
        try await identity.verifyPossession()
        entries.all.withLock { $0[key.uri ?? ""]?.chain = chain }
    }

    public func removeOtherCertificates(
        than leaf: X509Certificate, of key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) {}

    public func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool { try destroyStored(key) }

    public func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool {
        guard entry(key) != nil else { return false }
        return entries.all.withLock { $0.removeValue(forKey: key.uri) } != nil
    }

    public func announceDestruction(of key: KeyReference) async throws(ProviderError) -> [String] {
        entry(key).map { ["The private key '\($0.label)' and its certificate."] } ?? []
    }
}

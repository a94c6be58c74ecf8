import Terminal
import ArgumentParser
import CertificateProviding
import IdentityStore
import Logon
import NamedKeys

/// The subcommands for key pairs with a name and without a certificate.
struct KeysCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "keys",
        abstract: "Make key pairs with a name and without a certificate, and sign with them.",
        subcommands: [
            KeysCreate.self, KeysList.self, KeysExists.self, KeysExport.self, KeysSign.self, KeysImport.self,
            KeysDelete.self,
        ])
}

/// The name of a pair.
struct KeyNameArgument: ParsableArguments, Sendable {
    @Argument(
        help: ArgumentHelp("The name of the pair: 1 to 128 bytes of UTF-8, without '/'.", valueName: "name"),
        transform: Self.parse)
    var name: KeyName

    private static func parse(_ text: String) throws -> KeyName {
        if let name = KeyName(text) { return name }
        throw ValidationError("The name of a key pair must \(KeyName.rule).")
    }
}

/// The source of the PIN of a pair's key store.
struct KeysPINOption: ParsableArguments, Sendable {
    @Option(help: ArgumentHelp("The source of the key store's PIN, such as file:PATH.", valueName: "source"))
    var keyPinSource: String?

    var source: SecretSource? { keyPinSource.flatMap { SecretSource($0) } }

    func validate() throws {
        if keyPinSource != nil, source == nil {
            throw ValidationError("--key-pin-source must be file:PATH, env:NAME, fd:N, systemd:NAME or prompt.")
        }
    }
}

/// The place and the kind of a new pair.
struct NewPairOptions: ParsableArguments, Sendable {
    @Option(
        help: ArgumentHelp(
            "The key store: store:, pkcs11:token=NAME, or the URI of a plugin's. Default: store:.",
            discussion: "Its parameters are those of KeyStore.SCHEME in the property file, if there is one.",
            valueName: "uri"))
    var key: String?

    @Flag(help: "Ask a person at the terminal before each use of the private key, for good.")
    var confirm = false

    var place: String { key ?? NamedKeys.defaultStore }

    func validate() throws {
        if key?.lowercased().contains("pin-value") == true { throw KeyStoreOptions.pinIsVisible }
    }
}

extension CommandContext {
    /// Returns the named key pairs of the application that is configured, else of this host.
    ///
    /// - Parameters:
    ///   - uri: The key store of a new pair.
    ///   - isRemarked: Whether the warnings of the configuration are shown here.
    func namedKeys(
        _ pinSource: SecretSource? = nil, in uri: String? = nil, isRemarked: Bool = true
    ) async throws(ProviderError) -> NamedKeys {
        var configuration = try ConfigurationLookup(options: options, registry: registry).configurationIfAny()
        if isRemarked { configuration.warnings.forEach(remark) }
        configuration.providers = []
        let manager = try await manager(configuration)
        let keys = NamedKeys(try manager.environment(of: NamedKeys.storageID), pinSource: pinSource)
        // Remains of killed commands may be in any of them.
        setLibrariesApart(usedBy: try await keys.keyURIs() + [uri])
        return keys
    }

    /// Checks that a key is that of no named pair: what one signs must never pass for an identity's.
    ///
    /// - Throws: `operationNotAllowed`.
    func requireUnnamed(_ key: PublicKeyInfo) async throws(ProviderError) {
        guard let pair = try await namedKeys(isRemarked: false).pair(of: key) else { return }
        throw ProviderError(
            .operationNotAllowed,
            "The key is that of the named pair '\(pair.name.description.withVisibleControls)', and becomes no identity's; make "
                + "another key with: certprov keygen")
    }

    /// Returns the named pairs of an application whose private keys stay where they are when its vault is destroyed.
    func pairsOutside(_ manager: LogonManager) async -> [NamedKey] {
        guard let environment = try? manager.environment(of: NamedKeys.storageID) else { return [] }
        let pairs = (try? await NamedKeys(environment).list()) ?? []
        return pairs.filter { pair in
            guard let place = KeyStoreLocation(uri: pair.uri, pinSource: nil) else { return true }
            return (try? registry.keyStore(place.scheme))?.isExternal ?? true
        }
    }

    /// Returns the public keys of the identities that can be seen without a person: the stored ones, and those of the providers.
    func identityKeys() async throws(ProviderError) -> [PublicKeyInfo] {
        var chains = try identityStore().entries().compactMap { try? $0.identity.get().certificateChain }
        let configuration = try ConfigurationLookup(options: options, registry: registry).configurationIfAny()
        if !configuration.providers.isEmpty {
            // A host whose policy uses no provider has no identity either.
            for provider in (try? await manager(configuration).activeProviders()) ?? [] {
                if let listing = provider.listing {
                    chains += await listing.listIdentities().identities.map(\.certificateChain)
                } else if let identity = try? provider.getStoredCertificate() {
                    chains.append(identity.certificateChain)
                }
            }
        }
        return chains.compactMap { $0.first?.publicKey }
    }
}

extension GlobalOptions {
    /// Refuses the options of providers.
    func refuseProvider() throws {
        if drivenProvider != nil {
            throw ValidationError("A named key pair belongs to no provider; remove --provider, --set and --uri.")
        }
    }
}

/// A pair, as the subcommands show it.
struct NamedKeyItem: Encodable {
    let name: String
    /// Null for a type that is not made here.
    let type: Nullable<String>
    /// SubjectPublicKeyInfo, DER, in base64.
    let publicKey: String
    let uri: String
    /// Whether each use asks a person.
    let confirm: Bool

    init(_ pair: NamedKey) {
        name = pair.name.description
        type = Nullable(pair.type?.rawValue)
        publicKey = pair.publicKeyBase64
        uri = pair.uri
        confirm = pair.isConfirmed
    }
}

/// The result of `keys create`, `keys import` and `keys export`.
struct NamedKeyDocument: CommandDocument {
    static let kind = "NamedKey"

    let key: NamedKeyItem
}

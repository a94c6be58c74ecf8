import ArgumentParser
import CertificateProviding
import Logon

/// The options that name a key store, instead of the one of a provider.
struct KeyStoreOptions: ParsableArguments, Sendable {
    @Option(
        help: ArgumentHelp(
            "The key store: pkcs11:token=NAME, or the URI of a plugin's.",
            discussion: "Its parameters are those of KeyStore.SCHEME in the property file, if there is one.",
            valueName: "uri"))
    var key: String?

    @Option(
        help: ArgumentHelp("The source of the key store's PIN, such as file:PATH. Needs --key.", valueName: "source"))
    var keyPinSource: String?

    /// Makes options without values, for ArgumentParser to fill in.
    init() {}

    /// The parsed source of the PIN.
    var pinSource: SecretSource? { keyPinSource.flatMap { SecretSource($0) } }

    /// The path in the URI of a store of files; `nil` for other stores.
    var path: String? {
        let path = (key ?? "").drop { $0 != ":" }.dropFirst().prefix { $0 != "?" }
        return path.hasPrefix("/") ? String(path) : nil
    }

    func check(_ options: GlobalOptions) throws {
        try check()
        if key != nil, options.drivenProvider != nil {
            throw ValidationError("--key is instead of --provider and --uri; use one.")
        }
    }

    func check() throws {
        guard let key else {
            if keyPinSource != nil { throw ValidationError("--key-pin-source needs --key.") }
            return
        }
        if keyPinSource != nil, pinSource == nil {
            throw ValidationError("--key-pin-source must be file:PATH, env:NAME, fd:N, systemd:NAME or prompt.")
        }
        if key.lowercased().contains("pin-value") { throw Self.pinIsVisible }
    }

    static let pinIsVisible = ValidationError(
        "A PIN on the command line is visible to all users of this host: name its source with --key-pin-source.")
}

extension CommandContext {
    /// Returns a key store by its URI.
    ///
    /// - Returns: Also the name under which results show it.
    func keyStore(
        _ uri: String, _ pinSource: SecretSource?
    ) async throws(ProviderError) -> (any KeyStore, ProviderID) {
        var configuration = try ConfigurationLookup(options: options, registry: registry).configurationIfAny()
        configuration.warnings.forEach(remark)
        configuration.providers = []
        setLibrariesApart(usedBy: [uri])
        let store = try await manager(configuration).keyStores.store(uri, pinSource: pinSource, parameter: "key")
        return (store, ProviderID(rawValue: store.scheme) ?? ProviderID("key"))
    }
}

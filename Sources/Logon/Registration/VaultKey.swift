import CertificateProviding
import IdentityStore

/// The key of a key store that wraps a secret, without which the passcode does not open the vault (`Vault.key`).
struct VaultKey: Sendable {
    let configuration: LogonConfiguration
    let registrar: Registrar
    /// The key stores that work while the vault is locked.
    private let keyStores: KeyStores
    private let environmentOf: ProviderRegistry.Surroundings
    private let registry: ProviderRegistry

    /// - Throws: Errors of the making of key stores.
    init(
        _ configuration: LogonConfiguration, _ registrar: Registrar, _ registry: ProviderRegistry,
        in environment: @escaping ProviderRegistry.Surroundings
    ) throws(ProviderError) {
        (self.configuration, self.registrar, self.registry) = (configuration, registrar, registry)
        environmentOf = { id throws(ProviderError) in
            var own = try environment(id)
            own.storage = registrar.vault.outerStorage(for: id)
            return own
        }
        keyStores = try registry.keyStores(configuration.keyStores, in: environmentOf)
    }

    private func environment() throws(ProviderError) -> ProviderEnvironment {
        var own = try environmentOf(ProviderID("vault_"))
        own.keyStores = keyStores
        return own
    }

    /// Returns the key store of `Vault.key`; `nil` without one.
    ///
    /// - Throws: `configurationInvalid` for one that does not make such keys, or keeps them on this disk.
    func store() throws(ProviderError) -> (any KeyStore)? {
        guard let uri = configuration.registration.vaultKey else { return nil }
        let source = configuration.registration.vaultKeyPINSource
        let store = try registrar.keyStore("\(uri) \(source?.description ?? "")") {
            () throws(ProviderError) in
            try keyStores.store(
                uri, pinSource: source, parameter: LogonSetting.vaultKey)
        }
        guard store.makes[Self.keyType]?.contains(.oaepDecryption) == true else {
            throw configuration.invalid(
                LogonSetting.vaultKey,
                "The key store of 'Vault.key' makes no RSA keys that decrypt; set another one.")
        }
        guard store.location != .store else {
            throw configuration.invalid(
                LogonSetting.vaultKey,
                "The key 'Vault.key' must name a key store outside this host's disk, such as pkcs11:token=NAME.")
        }
        return store
    }

    /// Checks that the key store of `Vault.key` makes such keys and answers, without a prompt. False without `Vault.key`.
    ///
    /// - Throws: `configurationInvalid`, and errors of the key store.
    func check() async throws(ProviderError) -> Bool {
        guard let store = try store() else { return false }
        try await store.check(NoUserInteraction())
        return true
    }

    /// Opens the key store of `Vault.key`, with its PIN, and reads the record of its keys: if one of both fails, the server is not
    /// asked for a connection without a vault here.
    func open(_ interaction: any UserInteraction) async throws(ProviderError) {
        guard let store = try store() else { return }
        let environment = try environment()
        _ = try await environment.executor.run { () throws(ProviderError) in
            try OwnedKeys.recorded(in: environment.storage, record: Self.record)
        }
        try await store.check(interaction)
    }

    /// Makes the key, and a secret that only it can decrypt. The record of keys names it before it is used, and until it is
    /// destroyed.
    ///
    /// - Returns: The secret; `nil` without `Vault.key`.
    func make(
        _ terms: inout VaultTerms, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> SecretBytes? {
        guard let store = try store() else { return nil }
        let keys = OwnedKeys(store, try environment(), record: Self.record)
        // The keys of registrations that were interrupted, or of vaults that wrong passcodes have destroyed.
        try await keys.destroyOthers(than: [], interaction)
        let key = try await keys.make(
            NewKey(Self.keyType, label: "certprov vault \(registrar.vault.applicationID)", use: .oaepDecryption),
            interaction)
        guard let decrypter = key.decrypter, let scheme = decrypter.decryptionSchemes.first(where: \.isOAEP) else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The key store of Vault.key makes no keys that decrypt by RSAES-OAEP; set another one.")
        }
        let secret = SecretBytes.random(32)
        let ciphertext = try key.publicKey.encrypt(secret, using: scheme)
        // A key that cannot do it would lock the vault for good.
        guard try await decrypter.decrypt(ciphertext, using: scheme) == secret else { throw Self.anotherSecret }
        terms.wrapping = VaultKeyWrapping(
            secret, key: keys.store.reference(to: key), scheme: scheme.rawValue, ciphertext: ciphertext)
        return secret
    }

    /// Returns the secret that the vault's terms have wrapped; `nil` for a vault without one.
    ///
    /// - Throws: `notFound` if the key is gone, and errors of its key store.
    func factor(_ interaction: any UserInteraction) async throws(ProviderError) -> SecretBytes? {
        let terms = try await registrar.executor.run { () throws(ProviderError) in
            try registrar.vault.terms()
        }
        guard let wrapping = terms?.wrapping else { return nil }
        // Another store would get the PIN of this one, and count it as a wrong one. And the URI in the terms is authenticated only
        // when the vault opens: it could name a library to load.
        guard let store = try store(), store.holds(keyURI: wrapping.key.uri) else {
            throw configuration.invalid(
                LogonSetting.vaultKey,
                "The vault needs the key \(wrapping.key.uri.withVisibleControls), and 'Vault.key' does not name its key store; "
                    + "restore 'Vault.key', or run: certprov unregister --force")
        }
        return try await unwrap(wrapping, try await store.key(for: wrapping.key, interaction))
    }

    private func unwrap(
        _ wrapping: VaultKeyWrapping, _ key: (any IdentityKey)?
    ) async throws(ProviderError) -> SecretBytes {
        guard let decrypter = key?.decrypter else {
            throw ProviderError(
                .notFound,
                "The key that the vault needs is gone (\(wrapping.key.uri.withVisibleControls)); restore it, or run: "
                    + "certprov unregister --force")
        }
        return try await decrypter.decrypt(
            Array(wrapping.ciphertext), using: DecryptionScheme(rawValue: wrapping.scheme))
    }

    /// Destroys the keys that no vault needs any more: also those of an operation that was interrupted, and of a `Vault.key` that
    /// the configuration no longer has. Does nothing if there are none.
    func destroy(_ interaction: any UserInteraction) async throws(ProviderError) {
        let environment = try environment()
        let recorded = try await environment.executor.run { () throws(ProviderError) in
            try OwnedKeys.recorded(in: environment.storage, record: Self.record)
        }
        guard let key = recorded.first else { return }
        var other: (any KeyStore)?
        let store: any KeyStore
        // A lost key of an earlier setting does not block: the configured store counts if any of the keys is in it.
        if let configured = try? self.store(), recorded.contains(where: { configured.holds(keyURI: $0.uri) }) {
            store = configured
        } else {
            // Without the source of the PIN, which is another store's.
            store = try keyStores.store(key.uri, parameter: LogonSetting.vaultKey)
            other = store
        }
        let keys = OwnedKeys(store, environment, record: Self.record)
        do throws(ProviderError) { try await keys.destroyOthers(than: [], interaction) } catch {
            await other?.shutdown()
            var error = error
            error.message +=
                " The vault's key \(key.uri.withVisibleControls) is still there, though no vault needs it; run 'certprov unregister' "
                + "again."
            throw error
        }
        await other?.shutdown()
    }

    /// A sentence that names the keys that the destruction of the vault leaves; empty if there are none. May start a plugin,
    /// to learn of its key stores.
    var remainingKeys: String {
        let texts = configuration.providers.flatMap { provider in
            provider.parameters.names.compactMap { provider.parameters.string($0) }
        }
        let stores = texts.filter { text in
            // A source of a secret has a form like a URI's.
            guard SecretSource(text) == nil, let place = KeyStoreLocation(uri: text, pinSource: nil) else {
                return false
            }
            let configured = configuration.keyStores[place.scheme] ?? ProviderParameters()
            return (try? registry.keyStore(place.scheme, configured))?.isExternal == true
        }.map { String($0.prefix { $0 != "?" }).withVisibleControls }.sorted()
        return stores.isEmpty
            ? "" : " Keys in \(stores.joined(separator: " and ")) stay there; destroy them there."
    }

    private static let keyType = KeyType.rsa2048
    private static let record = "vault-keys"

    private static let anotherSecret = ProviderError(
        .keyMismatch, "The key that was made for the vault decrypts to something else; set another Vault.key.")
}

extension DecryptionScheme {
    fileprivate var isOAEP: Bool { self == .rsaOAEPSHA256 || self == .rsaOAEPSHA1 }
}

extension SecretBytes {
    fileprivate static func random(_ count: Int) -> SecretBytes {
        var generator = SystemRandomNumberGenerator()
        return SecretBytes(copying: (0..<count).map { _ in UInt8.random(in: .min ... .max, using: &generator) })
    }
}

import CertificateProviding

/// The private keys of the provider's identities, in whatever key store.
final class EnrolmentKeys: Sendable {
    private let parameters: Parameters
    private let stores: KeyStoreSet
    private let executor: BlockingExecutor
    /// Where new keys are made.
    var store: any KeyStore { stores.configured }

    init(_ parameters: Parameters, _ environment: ProviderEnvironment) {
        stores = KeyStoreSet(parameters[EnrolmentParameter.key], and: environment.keyStores)
        executor = environment.executor
        self.parameters = parameters
    }

    /// Makes a key, which exists for others only after `remember` has written it down.
    func make(
        _ type: KeyType, for names: CertificateRequest.Names, use: KeyUse, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (OwnedKey) async throws(CertificateProviderError) -> Void
    ) async throws(CertificateProviderError) -> any IdentityKey {
        do throws(CertificateProviderError) {
            return try await make(NewKey(type, label: Self.label(names), use: use), interaction, remember: remember)
        } catch {
            guard error.code == .unsupportedAlgorithm, use.contains(.pkcs1Decryption) else { throw error }
            var error = error
            error.message += " SCEP needs a key that can decrypt; leave 'key' out, or use EST."
            throw error
        }
    }

    /// Takes in a key that the server has made.
    func importKey(
        _ pkcs8: SecretBytes, for names: CertificateRequest.Names, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (OwnedKey) async throws(CertificateProviderError) -> Void
    ) async throws(CertificateProviderError) -> any IdentityKey {
        try await make(NewKey(pkcs8: pkcs8, label: Self.label(names)), interaction, remember: remember)
    }

    private func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (OwnedKey) async throws(CertificateProviderError) -> Void
    ) async throws(CertificateProviderError) -> any IdentityKey {
        try await store.make(new, interaction) { [store] key throws(CertificateProviderError) in
            try await remember(.stored(store.reference(to: key)))
        }
    }

    private static func label(_ names: CertificateRequest.Names) -> String { names.commonName ?? names.subjectText }

    /// Returns the key; `nil` if it is gone.
    func find(
        _ key: OwnedKey, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> (any IdentityKey)? {
        switch key {
        case .sealed(let privateKey): try SoftwareKey(pkcs8: privateKey, location: .store)
        case .stored(let key): try await store(of: key).key(for: key, interaction)
        }
    }

    /// Returns the key without a prompt. Blocks for its key store.
    ///
    /// - Throws: `notFound` if it is gone; `interactionRequired`, with the parameter to set, if a person would have to be
    ///   asked.
    func storedKey(_ key: OwnedKey) throws(CertificateProviderError) -> any IdentityKey {
        switch key {
        case .sealed(let privateKey): return try SoftwareKey(pkcs8: privateKey, location: .store)
        case .stored(let key):
            do throws(CertificateProviderError) {
                if let key = try store(of: key).storedKey(for: key) { return key }
            } catch {
                guard error.code == .interactionRequired else { throw error }
                throw missingPIN(of: key)
            }
            throw CertificateProviderError(
                .notFound,
                "The private key of the stored identity is gone from its key store (\(DisplayText.visible(key.uri))); have a "
                    + "new identity made: certprov fetch --force.")
        }
    }

    private func missingPIN(of key: KeyReference) -> CertificateProviderError {
        let uri = key.uri.prefix { $0 != "?" }
        return CertificateProviderError(
            .interactionRequired,
            isConfigured(key)
                ? "The key is in a key store whose PIN is not configured (\(uri)); set 'key-pin-source', or a "
                    + "'pin-source' in the URI of 'key'."
                : "The key is in a key store (\(uri)) that 'key' no longer names, and whose PIN is not configured; set 'key' to "
                    + "it again, or have a new identity made with the present 'key': certprov fetch --force.")
    }

    /// Stores an issued chain beside its key, and lets the key sign a probe.
    func storeChain(
        _ owned: OwnedKey, _ key: any IdentityKey, with chain: [X509Certificate], trust: TrustBundle?,
        source: String, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> Identity {
        let identity = try Identity(
            certificateChain: chain, key: key, trust: trust,
            provenance: .init(provider: RemoteMDMProvider.id, source: source))
        if let reference = owned.reference {
            try await store(of: reference).storeChain(chain, for: key, interaction)
        } else {
            try await identity.verifyPossession()
        }
        return identity
    }

    /// Destroys a key in a key store, and the certificates beside it. A key that rests with its identity goes with that.
    func destroy(_ key: OwnedKey, _ interaction: any UserInteraction) async throws(CertificateProviderError) {
        guard let key = key.reference else { return }
        try await store(of: key).destroy(key, interaction)
    }

    /// Destroys the certificates beside an identity's key that are not the identity's: one may have been issued to a
    /// process that ended before it stored it.
    func removeOthers(
        than identity: Identity, _ key: OwnedKey, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        guard let key = key.reference else { return }
        try await store(of: key).certificates?.removeOtherCertificates(than: identity.certificate, of: key, interaction)
    }

    /// Whether a key is in the key store that is configured now.
    func isConfigured(_ key: KeyReference) -> Bool { stores.isConfigured(key) }

    /// The key store of a key. Blocks where a plugin is asked.
    func store(of key: KeyReference) throws(CertificateProviderError) -> any KeyStore {
        try parameters.reading(EnrolmentParameter.key) { () throws(CertificateProviderError) in
            try stores.store(of: key)
        }
    }

    /// The key store of a key, for tasks.
    func store(of key: KeyReference) async throws(CertificateProviderError) -> any KeyStore {
        try await executor.run { [self] () throws(CertificateProviderError) in try store(of: key) }
    }

    func shutdown() async { await stores.shutdown() }
}

public import CertificateProviding

/// Shortcuts of tests to the key store of a provider.
extension CertificateProvider {
    private func store() throws(ProviderError) -> any KeyStore {
        guard let keyStore else { throw ProviderError(.internal, "The provider has no key store.") }
        return keyStore
    }

    public func generateKey(
        _ type: KeyType, label: String, for use: KeyUse = .signing, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) throws(ProviderError) -> Void = { _ in }
    ) async throws(ProviderError) -> any IdentityKey {
        try await store().make(NewKey(type, label: label, use: use), interaction) {
            key throws(ProviderError) in
            try remember(key)
        }
    }

    public func key(
        for publicKey: PublicKeyInfo, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? {
        try await store().key(for: KeyReference(publicKey: publicKey, uri: ""), interaction)
    }

    public func storedKey(for publicKey: PublicKeyInfo) throws(ProviderError) -> (any IdentityKey)? {
        try store().storedKey(for: KeyReference(publicKey: publicKey, uri: ""))
    }

    public func store(
        certificateChain: [X509Certificate], for key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        try await store().storeChain(certificateChain, for: key, interaction)
        return try Identity(
            certificateChain: certificateChain, key: key, provenance: .init(provider: id, source: key.uri))
    }

    public func removeReplacedCertificates(
        of identity: Identity, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        let store = try store()
        try await store.certificates?.removeOtherCertificates(
            than: identity.certificate, of: store.reference(to: identity.key), interaction)
    }

    public func discard(
        _ key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        let store = try store()
        try await store.destroy(store.reference(to: key), interaction)
    }

    public func removeRemains(
        of publicKey: PublicKeyInfo, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        try await store().destroy(KeyReference(publicKey: publicKey, uri: ""), interaction)
    }
}

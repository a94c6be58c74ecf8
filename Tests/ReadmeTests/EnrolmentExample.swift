import CertificateProviding

/// Gets a certificate for a key that is made in a key store, such as a token, and never leaves it.
func enrol(
    into store: any KeyStore, _ interaction: any UserInteraction,
    writeDown: @escaping @Sendable (KeyReference) async throws(ProviderError) -> Void,
    issue: (CertificateRequest) async throws -> [X509Certificate]
) async throws -> Identity {
    let names = try CertificateRequest.Names(subject: "CN=client,O=Example")
    let key = try await store.make(NewKey(.p256, label: "client"), interaction) {
        key throws(ProviderError) in
        try await writeDown(store.reference(to: key))
    }
    do {
        let chain = try await issue(try await CertificateRequest(names, key: key))
        try await store.storeChain(chain, for: key, interaction)
        return try Identity(certificateChain: chain, key: key, provenance: .init(provider: ProviderID("example")))
    } catch {
        // Nothing else refers to the key.
        _ = try? await store.destroy(store.reference(to: key), interaction)
        throw error
    }
}

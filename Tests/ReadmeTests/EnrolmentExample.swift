import CertificateProviding

/// Gets a certificate for a key that is made in its home, such as a token, and never leaves it.
func enrol(
    into home: any KeyGenerating, _ interaction: any UserInteraction,
    issue: (CertificateRequest) async throws -> [X509Certificate]
) async throws -> Identity {
    let names = try CertificateRequest.Names(subject: "CN=client,O=Example")
    let key = try await home.generateKey(.p256, label: "client", interaction)
    do {
        let chain = try await issue(try await CertificateRequest(names, key: key))
        return try await home.store(certificateChain: chain, for: key, interaction)
    } catch {
        // Nobody else knows of the key.
        try? await home.discard(key, interaction)
        throw error
    }
}

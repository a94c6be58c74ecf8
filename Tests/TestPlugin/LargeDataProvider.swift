import CertificateProviding
import TestSupport

/// Signs 100 MB with a new key of the host before it returns an identity with it.
final class LargeDataProvider: CertificateProvider {
    static var descriptor: ProviderDescriptor {
        let keyParameter = Parameter.keyStore("key", default: "store:", summary: "The key store for new keys.")
        return ProviderDescriptor(
            id: ProviderID("large"), displayName: "Large", summary: "Signs large data.",
            parameters: [keyParameter.descriptor]
        ) { _, parameters throws(ProviderError) in LargeDataProvider(parameters[keyParameter]) }
    }

    let id = ProviderID("large")
    private let store: any KeyStore
    private init(_ store: any KeyStore) { self.store = store }

    func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        let key = try await store.make(NewKey(.rsa2048, label: "large"), interaction) { _ in }
        let message = [UInt8](repeating: 7, count: 100_000_000)
        let signature = try await key.signature(for: message, using: .rsaPSSRSAESHA256)
        guard key.publicKey.isValidSignature(signature, for: message, using: .rsaPSSRSAESHA256) else {
            throw ProviderError(.keyMismatch, "The signature of 100 MB does not verify.")
        }
        do {
            let authority = try TestAuthority()
            let leaf = try authority.certify(key.publicKey.derRepresentation, as: "large")
            return try Identity(
                certificateChain: [leaf, authority.intermediate], key: key, provenance: .init(provider: id))
        } catch { throw ProviderError(.internal, "\(error)") }
    }

    func getStoredCertificate() throws(ProviderError) -> Identity? { nil }
    func deleteStoredCertificate() throws(ProviderError) {}
}

import CertificateProviding
import X509

/// What a request for a certificate says.
struct RequestContent: Sendable {
    let names: CertificateRequest.Names

    /// - Parameter attributes: What else it says: a challenge password.
    /// - Returns: DER.
    func signed(
        with key: any IdentityKey, attributes: [CertificateSigningRequest.Attribute] = []
    ) async throws(CertificateProviderError) -> [UInt8] {
        try await CertificateRequest(names, attributes: attributes, key: key).derRepresentation
    }
}

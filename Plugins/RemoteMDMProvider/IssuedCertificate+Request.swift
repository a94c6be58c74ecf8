import CertificateProviding
import FoundationEssentials

extension IssuedCertificate {
    init(
        _ certificates: [X509Certificate], for request: EnrolmentRequest, from authorities: [X509Certificate],
        through intermediates: [X509Certificate] = [], at now: Date
    ) async throws(CertificateProviderError) {
        try await self.init(
            certificates, for: request.key.publicKey, request.names, renewing: request.current?.certificate,
            from: authorities, through: intermediates, at: now)
    }
}

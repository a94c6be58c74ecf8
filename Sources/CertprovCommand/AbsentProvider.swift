package import CertificateProviding

/// Stands for a provider that this program does not have, and says why.
package struct AbsentProvider: CertificateProvider {
    package let id: ProviderID
    private let error: CertificateProviderError

    package init(id: ProviderID, error: CertificateProviderError) {
        self.id = id
        self.error = error
    }

    package func setParameters(_ parameters: ProviderParameters) throws(CertificateProviderError) { throw error }

    package func getCertificate(
        _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> Identity { throw error }

    package func getStoredCertificate() throws(CertificateProviderError) -> Identity? { throw error }
    package func deleteStoredCertificate() throws(CertificateProviderError) { throw error }
}

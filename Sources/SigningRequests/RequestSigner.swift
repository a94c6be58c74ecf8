package import CertificateProviding

/// The identity that answers requests.
package protocol RequestSigner: Sendable {
    /// Returns the certificate that would sign, without a question wherever that is possible.
    func certificate() async throws(ProviderError) -> X509Certificate

    /// Returns the identity, which may ask for a PIN.
    func identity() async throws(ProviderError) -> Identity
}

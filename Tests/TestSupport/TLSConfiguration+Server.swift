package import CertificateTLS
package import NIOSSL

extension TLSConfiguration {
    /// A server whose clients BoringSSL verifies, and which demands a certificate of each.
    package static func makeServerConfiguration(
        presenting credentials: some TLSCredentialSource, demandingClientCertificatesFrom anchors: TrustAnchors
    ) throws -> TLSConfiguration {
        var configuration = makeConfiguration(forHandlerThatVerifies: [])
        configuration.trustRoots = try anchors.load()
        configuration.sendCANameList = true
        credentials.present(in: &configuration)
        return configuration
    }
}

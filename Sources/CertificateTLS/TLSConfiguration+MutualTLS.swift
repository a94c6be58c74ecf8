package import CertificateProviding
package import NIOSSL

/// Configurations for mutual TLS: at least version 1.2, forward secrecy, verification of the peer.
extension TLSConfiguration {
    /// Creates the configuration of a client whose handlers are made by others: BoringSSL verifies the server's chain and name, as
    /// ``RotatingTLS/clientConfiguration()`` says. Blocks on the file of the trust anchors, if there is one.
    ///
    /// - Throws: Errors of the trust anchors.
    package static func makeClientConfiguration(
        presenting credentials: some TLSCredentialSource, trusting trustAnchors: TrustAnchors
    ) throws(ProviderError) -> TLSConfiguration {
        var configuration = hardened(trusting: try trustAnchors.load())
        configuration.certificateVerification = .fullVerification
        credentials.present(in: &configuration)
        return configuration
    }

    /// Creates a configuration for a handler with a verification callback of its own, which decides about the peer: BoringSSL
    /// verifies nothing but the handshake.
    ///
    /// - Parameter authorities: The CAs whose names a server sends.
    package static func makeConfiguration(
        forHandlerThatVerifies authorities: [NIOSSLCertificate] = []
    ) -> TLSConfiguration {
        var configuration = hardened(trusting: .certificates(authorities))
        // With it, BoringSSL demands a certificate, and calls back.
        configuration.certificateVerification = .noHostnameVerification
        configuration.sendCANameList = !authorities.isEmpty
        return configuration
    }

    /// Disables TLS 1.3, unless it is the minimum version.
    mutating func excludeTLS13() {
        guard minimumTLSVersion != .tlsv13, maximumTLSVersion ?? .tlsv13 == .tlsv13 else { return }
        maximumTLSVersion = .tlsv12
    }

    private static func hardened(trusting trustRoots: NIOSSLTrustRoots) -> TLSConfiguration {
        // NIOSSL's client and server configurations differ only in fields that are all set by our callers.
        var configuration = TLSConfiguration.makeClientConfiguration()
        configuration.trustRoots = trustRoots
        configuration.minimumTLSVersion = .tlsv12
        // For TLS 1.2, those that RFC 9325, section 4.2 recommends; TLS 1.3 has only good ones.
        configuration.cipherSuites = "ECDH+AESGCM:ECDH+CHACHA20"
        configuration.verifySignatureAlgorithms = SignatureAlgorithm.usable
        // NIOSSL's own list and P-521: in TLS 1.2 the list also says which curves a server's key may be on.
        configuration.curves = [.x25519_MLKEM768, .x25519, .secp256r1, .secp384r1, .secp521r1]
        return configuration
    }
}

public import CertificateProviding
public import NIOSSL

/// Configurations for mutual TLS: at least version 1.2, forward secrecy, full verification of the peer.
extension TLSConfiguration {
    /// Creates a client's configuration that presents `credentials` when the server asks, and verifies the server's
    /// chain and name.
    ///
    /// SwiftNIO SSL accepts more names than RFC 9525: a certificate for the IP address of the connection, even if a DNS
    /// name was requested, and the common name if there are no alternative names. A configuration cannot change this.
    /// If a holder of another certificate under `trustAnchors` must not pass as this server, check the peer's leaf with
    /// ``CertificateProviding/X509Certificate/isValid(forServerName:)`` after the handshake.
    ///
    /// SwiftNIO SSL refuses a server that sends an expired CA certificate before a valid one with the same name and key, which
    /// OpenSSL and ``ServerTrust`` trust: have the server send the valid one only.
    ///
    /// SwiftNIO SSL clients never resume a session, so every connection presents the identity that is current when the
    /// server asks.
    ///
    /// Reads the file of the trust anchors, if there is one; do not call it on an event loop.
    /// - Throws: `fileNotFound`, `configurationInvalid` or `malformedData` for the trust anchors.
    public static func makeClientConfiguration(
        presenting credentials: some TLSCredentialSource, trusting trustAnchors: TrustAnchors
    ) throws(ProviderError) -> TLSConfiguration {
        var configuration = try makeClientConfiguration(trusting: trustAnchors)
        credentials.present(in: &configuration)
        return configuration
    }

    /// Creates a client's configuration like ``makeClientConfiguration(presenting:trusting:)``, without a client
    /// certificate.
    ///
    /// Reads the file of the trust anchors, if there is one; do not call it on an event loop.
    /// - Throws: `fileNotFound`, `configurationInvalid` or `malformedData` for the trust anchors.
    package static func makeClientConfiguration(
        trusting trustAnchors: TrustAnchors
    ) throws(ProviderError) -> TLSConfiguration {
        var configuration = hardened(trusting: try trustAnchors.load())
        configuration.certificateVerification = .fullVerification
        return configuration
    }

    /// Creates a server's configuration that presents `credentials` and completes a handshake only with a client whose
    /// certificate leads to one of `trustAnchors`. The names of the trust anchors are sent to the client, unless they exceed
    /// 16 KiB, and except those of the system trust store, which ``TrustAnchors/system`` does not stand for here: see
    /// ``TrustAnchors/systemAdmittingAnyClient``.
    ///
    /// A client may resume a session (RFC 8446, section 2.2) without presenting a certificate again; the verified
    /// certificate then still applies, also when its CA is no longer trusted. SwiftNIO SSL cannot disable this; a new
    /// `NIOSSLContext` ends all sessions. ``RotatingTLS/server(_:)`` makes handlers that verify every connection.
    ///
    /// Reads the file of the trust anchors, if there is one; do not call it on an event loop.
    /// - Throws: `fileNotFound`, `configurationInvalid` or `malformedData` for the trust anchors; `configurationInvalid` for
    ///   ``TrustAnchors/system``.
    public static func makeServerConfiguration(
        presenting credentials: some TLSCredentialSource, demandingClientCertificatesFrom trustAnchors: TrustAnchors
    ) throws(ProviderError) -> TLSConfiguration {
        let roots = try trustAnchors.loadForClients()
        var configuration = hardened(trusting: roots)
        // Verifies the chain and demands one. A client's certificate has no name that the server could know beforehand.
        configuration.certificateVerification = .noHostnameVerification
        configuration.sendCANameList = TrustAnchors.areNamed(roots)
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

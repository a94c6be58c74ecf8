public import CertificateProviding
import NIOCore
import NIOSSL

extension CertificateProviderError {
    /// Says what an error that came out of a channel's pipeline, or out of an HTTP client, tells about a TLS handshake.
    ///
    /// - `rejected`: the peer does not accept our certificate. `nativeCode` is the number of its ``TLSAlert``.
    /// - `protocolError`: everything else that the peer did or showed, such as a certificate that is not trusted.
    /// - An error of our own key, such as of a token that was pulled out, is returned as it is.
    ///
    /// - Parameters:
    ///   - error: What was caught.
    ///   - peer: How to call the peer in the message, such as its address.
    /// - Returns: nil for an error that is not about TLS.
    public init?(tlsError error: any Error, from peer: String) {
        func problem(_ text: String) -> Self { Self(.protocolError, "\(peer) \(text).", underlying: error) }
        if let error = error as? CertificateProviderError {
            self = error
        } else if let alert = TLSAlert(receivedIn: error) {
            if alert == .certificateRequired {
                self = Self(demandedCertificate: alert, by: peer, underlying: error)
                // handshake_failure is about a certificate only when one was demanded, which is not known here.
            } else if alert.refusesCertificate && alert != .handshakeFailure {
                self = Self(.rejected, "\(peer) refused the certificate with the alert \(alert).", underlying: error)
            } else if alert == .protocolVersion {
                self = problem(
                    "permits no TLS version that is offered here (alert \(alert)). \(Self.versionAdvice)")
            } else {
                self = problem("ended the TLS handshake with the alert \(alert)")
            }
            nativeCode = Int(alert.rawValue)
        } else if error as? NIOSSLExtraError == .failedToValidateHostname {
            self = problem("showed a certificate that is not for the name that was asked for")
        } else if BoringSSLReason.reasons(in: error).contains(.certificateVerifyFailed) {
            self = problem(
                """
                showed a certificate that is not trusted: it does not lead to one of the trust anchors, is outside its \
                validity or is not meant for this use
                """)
        } else if BoringSSLReason.reasons(in: error).contains(.peerDidNotReturnACertificate) {
            self = problem("showed no certificate, and one is demanded")
        } else if BoringSSLReason.reasons(in: error).contains(.noCommonSignatureAlgorithms) {
            // Found out here, with our own key, and not by the peer.
            self = Self(
                .unsupportedAlgorithm,
                """
                The key of the identity cannot sign in any way that \(peer) takes. In TLS 1.3 an RSA key must sign with \
                RSASSA-PSS (RFC 8446, section 4.2.3), which not every token can; such a key works with TLS 1.2.
                """,
                underlying: error)
        } else if BoringSSLReason.reasons(in: error).contains(.unsupportedProtocol) {
            self = problem("speaks no TLS version that is permitted here. \(Self.versionAdvice)")
        } else if BoringSSLReason.reasons(in: error).contains(.noSupportedVersionsEnabled) {
            self = Self(
                .unsupportedAlgorithm,
                """
                The TLS configuration for \(peer) demands a version above the highest that it permits. \
                \(Self.versionAdvice)
                """,
                underlying: error)
        } else {
            switch error {
            case NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake])):
                self = problem("closed the connection during the TLS handshake; check the port")
            case is NIOSSLError, is BoringSSLError:
                self = problem("does not speak TLS, or not in a way that is understood here; check the port")
            default: return nil
            }
        }
    }

    /// Says that a peer wants a certificate where none is shown: with `certificate_required` in TLS 1.3, and in older
    /// versions with whatever it likes (RFC 5246, section 7.4.6).
    package init(demandedCertificate alert: TLSAlert, by peer: String, underlying: any Error) {
        self.init(
            .rejected,
            """
            \(peer) demands a client certificate, and none was shown (alert \(alert)); see whether it takes clients that \
            have none yet.
            """,
            nativeCode: Int(alert.rawValue), underlying: underlying)
    }

    private static let versionAdvice = """
        An RSA key that cannot sign with RSASSA-PSS works with TLS 1.2 only (RFC 8446, section 4.2.3); permit that, or use \
        another key.
        """
}

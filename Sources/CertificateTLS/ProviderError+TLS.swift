package import CertificateProviding
import NIOCore
import NIOSSL

extension ProviderError {
    /// Creates the error for a TLS failure from the error of a channel's pipeline or of an HTTP client.
    ///
    /// - `rejected`: the peer refused our certificate. `nativeCode` is the number of its ``TLSAlert``.
    /// - `serverNotTrusted`: the peer's certificate does not authenticate it; for a server, the client's.
    /// - `protocolError`: all other failures caused by the peer.
    /// - An error of our own key, such as a removed token, is returned unchanged.
    ///
    /// - Parameters:
    ///   - error: The error that was caught.
    ///   - peer: The name of the peer in the message, such as its address.
    ///   - key: The key of the identity for the connection; `nil` without one.
    /// - Returns: `nil` for an error that does not concern TLS.
    package init?(tlsError error: any Error, from peer: String, with key: PublicKeyInfo?) {
        func problem(_ text: String, _ code: Code = .protocolError) -> Self {
            Self(code, "\(peer) \(text).", underlying: error)
        }
        if let error = error as? ProviderError {
            self = error
        } else if let alert = TLSAlert(receivedIn: error) {
            if alert == .certificateRequired {
                self = Self(demandedCertificate: alert, by: peer, underlying: error)
                // handshake_failure is about a certificate only when one was demanded, which is not known here.
            } else if alert.refusesCertificate && alert != .handshakeFailure {
                self = Self(
                    .rejected,
                    "\(peer) refused the certificate with the alert \(alert); \(alert.advice(for: nil)).",
                    underlying: error)
            } else if alert == .protocolVersion {
                self = problem(
                    "supports none of the TLS versions that this host offers (alert \(alert)). \(Self.versionAdvice(for: key))"
                )
            } else {
                self = problem("ended the TLS handshake with the alert \(alert); \(alert.advice)")
            }
            nativeCode = Int(alert.rawValue)
        } else if error as? NIOSSLExtraError == .failedToValidateHostname {
            self = problem(
                """
                presented a certificate that is not valid for the requested name; connect by a name of the certificate \
                (SwiftNIO SSL accepts letters, digits, hyphens and periods in it, and no underscore)
                """, .serverNotTrusted)
        } else if BoringSSLReason.reasons(in: error).contains(.certificateVerifyFailed) {
            self = problem(
                """
                presented a certificate that is not trusted: its chain does not lead to a trust anchor, it is outside \
                its validity period, or it is not permitted for this use; check the trust anchors, and this host's \
                clock
                """, .serverNotTrusted)
        } else if BoringSSLReason.reasons(in: error).contains(.noRenegotiation) {
            self = problem(
                """
                asks for another handshake in the connection (renegotiation), as servers do that demand a client \
                certificate for some paths only. This works once, with TLS 1.2 and a key that is not in a token, in an \
                enrolment. Have the server ask in the first handshake (Apache: SSLVerifyClient for the whole host, not \
                in a <Location>)
                """)
        } else if BoringSSLReason.reasons(in: error).contains(.peerDidNotReturnACertificate) {
            self = problem("presented no certificate, and one is required; configure one there")
        } else if BoringSSLReason.reasons(in: error).contains(.noCommonSignatureAlgorithms) {
            // Found out here, with our own key, and not by the peer.
            self = Self(
                .unsupportedAlgorithm,
                """
                The key of the identity\(key.map { " (\($0.displayName))" } ?? "") supports no signature scheme that \(peer) accepts. \
                \(key?.algorithm == .rsa ? Self.adviceForRSA : "Permit its schemes there, or use another key.")
                """,
                underlying: error)
        } else if BoringSSLReason.reasons(in: error).contains(.unsupportedProtocol) {
            self = problem("supports no TLS version that is permitted here. \(Self.versionAdvice(for: key))")
        } else if BoringSSLReason.reasons(in: error).contains(.noSupportedVersionsEnabled) {
            self = Self(
                .unsupportedAlgorithm,
                """
                The TLS configuration for \(peer) has a minimum version above its maximum version. \
                \(Self.versionAdvice(for: key))
                """,
                underlying: error)
        } else {
            switch error {
            case NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake])):
                self = problem("closed the connection during the TLS handshake; check the port")
            case is NIOSSLError, is BoringSSLError:
                self = problem("does not speak TLS, or sent invalid TLS data; check the port")
            default: return nil
            }
        }
    }

    /// Creates the error for a peer that requires a client certificate when none was presented: it sends
    /// `certificate_required` in TLS 1.3, and any alert in older versions (RFC 5246, section 7.4.6).
    package init(demandedCertificate alert: TLSAlert, by peer: String, underlying: any Error) {
        self.init(
            .rejected,
            """
            \(peer) requires a client certificate, and none was presented (alert \(alert)); check whether it accepts \
            clients that have none yet.
            """,
            nativeCode: Int(alert.rawValue), underlying: underlying)
    }

    private static func versionAdvice(for key: PublicKeyInfo?) -> String {
        key?.algorithm == .rsa ? adviceForRSA : "Permit a version that both have."
    }

    private static let adviceForRSA = """
        An RSA key that cannot sign with RSASSA-PSS works with TLS 1.2 only (RFC 8446, section 4.2.3); permit TLS 1.2, \
        or use another key.
        """
}

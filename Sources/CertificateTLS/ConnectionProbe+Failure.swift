import CertificateProviding
import Glibc
import NIOCore
import NIOPosix
import NIOSSL

extension ConnectionProbe {
    /// Converts an error of the connection into an error for the user.
    func failure(_ error: any Error, certificateRequested: Bool) -> ProviderError {
        let peer = hostAndPort(host, port)
        if let alert = TLSAlert(receivedIn: error) {
            return failure(alert, from: peer, certificateRequested: certificateRequested, underlying: error)
        }
        switch error {
        case ChannelError.connectTimeout:
            return ProviderError(
                .timedOut,
                "\(peer) did not complete a TLS handshake within \(deadline); check the port, or allow more time.",
                underlying: error)
        case is SignatureOutstanding:
            return ProviderError(
                .timedOut,
                """
                The key of \(presented) did not sign within \(deadline) for the TLS handshake with \(peer); check \
                whether its token or service hangs, or allow more time.
                """,
                provider: credentials?.identity.provenance.provider)
        case let error as ClosedWhileSigning:
            let seconds = max(1, error.time.nanoseconds / 1_000_000_000)
            return ProviderError(
                .protocolError,
                """
                \(peer) closed the connection during the TLS handshake. The key of \(presented) had been signing for \
                \(seconds) s; the server's timeout may be shorter.
                """)
        case is VerdictOutstanding:
            return ProviderError(
                .timedOut,
                """
                \(peer) completed the TLS handshake, but did not show within \(deadline) whether it accepts the client \
                certificate; allow more time.
                """)
        case is ClosedWithoutReason:
            return ProviderError(
                .rejected,
                """
                \(peer) asked for a client certificate, got \(presented), and closed the connection without giving a \
                reason; see the server's log.
                """,
                provider: credentials?.identity.provenance.provider)
        case let error as NotConnected:
            return connectionFailure(error.reason, to: peer)
        case is ClosedWithoutAnswer:
            return ProviderError(
                .unavailable,
                "\(peer) completed the TLS handshake, and closed the connection without an answer to GET /; see its log."
            )
        case is AnswerOutstanding:
            return ProviderError(
                .timedOut,
                """
                \(peer) completed the TLS handshake, but did not answer GET / within \(deadline); allow more time.
                """)
        case is NotHTTP:
            return ProviderError(
                .protocolError,
                "\(peer) completed the TLS handshake, but its answer to GET / is not HTTP/1.1; check the port.")
        case ChannelError.eof, is IOError:
            return ProviderError(
                .protocolError, "\(peer) closed the connection during the TLS handshake; check the port.",
                underlying: error)
        default:
            return ProviderError(tlsError: error, from: peer, with: credentials?.identity.certificate.publicKey)
                ?? ProviderError(
                    .internal, "The connection to \(peer) failed: \(error).", underlying: error)
        }
    }

    private func failure(
        _ alert: TLSAlert, from peer: String, certificateRequested: Bool, underlying: any Error
    ) -> ProviderError {
        if alert == .protocolVersion, let credentials, !credentials.signsInTLS13 {
            let identity = credentials.identity
            return ProviderError(
                .unsupportedAlgorithm,
                """
                \(peer) requires TLS 1.3, in which the key of '\(identity.certificate.subject)' cannot sign: an RSA \
                key must use RSASSA-PSS (RFC 8446, section 4.2.3). This key works with TLS 1.2: permit that on the \
                server, or use an identity with another type of key.
                """,
                provider: identity.provenance.provider, nativeCode: Int(alert.rawValue), underlying: underlying)
        }
        guard certificateRequested && alert.refusesCertificate else {
            return ProviderError(
                .protocolError, "\(peer) ended the TLS handshake with the alert \(alert); \(alert.advice).",
                nativeCode: Int(alert.rawValue), underlying: underlying)
        }
        let message =
            if let identity = credentials?.identity, alert == .decryptError {
                // RFC 8446, section 6.2. OpenSSL and BoringSSL send it for the signatures in certificates as well.
                """
                \(peer) could not verify a signature (alert \(alert)). Either the key does not match the certificate \
                '\(identity.certificate.subject)', or the server has another key for the issuer \
                '\(identity.certificate.issuer)'. Renew the identity, or ask the server's administrator.
                """
            } else if let identity = credentials?.identity {
                """
                \(peer) refused the client certificate '\(identity.certificate.subject)' with the alert \(alert); \
                \(alert.advice(for: identity.certificate)).
                """
            } else {
                "\(peer) requires a client certificate (alert \(alert)), and none was presented; configure one."
            }
        return ProviderError(
            .rejected, message, provider: credentials?.identity.provenance.provider, nativeCode: Int(alert.rawValue),
            underlying: underlying)
    }

    private var presented: String { credentials.map { "'\($0.identity.certificate.subject)'" } ?? "none" }

    private func connectionFailure(_ error: any Error, to peer: String) -> ProviderError {
        let attempts = (error as? NIOConnectionError)?.connectionErrors.map(\.error) ?? [error]
        guard let last = attempts.last else {
            return ProviderError(
                .unavailable, "The name '\(host)' has no address; check the name, and DNS.", underlying: error)
        }
        if case ChannelError.connectTimeout = last { return failure(last, certificateRequested: false) }
        let reason = (last as? IOError).map { errorText($0.errnoCode) } ?? "\(last)"
        return ProviderError(
            .unavailable,
            "Cannot connect to \(peer): \(reason). Check the name and the port, and that the server is up.",
            underlying: error)
    }
}

import CertificateProviding
import Glibc
import NIOCore
import NIOPosix
import NIOSSL

extension ConnectionProbe {
    /// Says what `error` means for the person who wants to connect.
    func failure(_ error: any Error, certificateRequested: Bool) -> CertificateProviderError {
        let peer = "\(host):\(port)"
        if let error = error as? CertificateProviderError { return error }
        if let alert = TLSAlert(receivedIn: error) {
            return failure(alert, from: peer, certificateRequested: certificateRequested, underlying: error)
        }
        switch error {
        case ChannelError.connectTimeout:
            return CertificateProviderError(
                .timedOut, "\(peer) did not complete a TLS handshake within \(deadline).", underlying: error)
        case let error as NotConnected:
            return connectionFailure(error.reason, to: peer)
        case let error as NIOSSLExtraError where error == .failedToValidateHostname:
            return CertificateProviderError(
                .protocolError,
                "The certificate of \(peer) is not for '\(serverName ?? host)'; check the name, or name the right one.",
                underlying: error)
        case NIOSSLError.unableToValidateCertificate:
            return CertificateProviderError(
                .protocolError, "The certificate of \(peer) is not for this address; connect by its DNS name.",
                underlying: error)
        case _ where BoringSSLReason.reasons(in: error).contains(.certificateVerifyFailed):
            return CertificateProviderError(
                .protocolError,
                """
                The certificate of \(peer) is not trusted: it does not lead to one of the trust anchors, is outside its \
                validity or is not meant for servers.
                """,
                underlying: error)
        case NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake])), ChannelError.eof, is IOError:
            return CertificateProviderError(
                .protocolError, "\(peer) closed the connection during the TLS handshake; check the port.",
                underlying: error)
        case is NIOSSLError, is BoringSSLError:
            return CertificateProviderError(
                .protocolError, "\(peer) does not speak TLS, or not in a way that is understood here; check the port.",
                underlying: error)
        default:
            return CertificateProviderError(.internal, "The connection to \(peer) failed: \(error).", underlying: error)
        }
    }

    private func failure(
        _ alert: TLSAlert, from peer: String, certificateRequested: Bool, underlying: any Error
    ) -> CertificateProviderError {
        guard certificateRequested && alert.refusesCertificate else {
            return CertificateProviderError(
                .protocolError, "\(peer) ended the TLS handshake with the alert \(alert).",
                nativeCode: Int(alert.rawValue), underlying: underlying)
        }
        let message =
            if let identity = credentials?.identity {
                """
                \(peer) refused the client certificate '\(identity.certificate.subject)' with the alert \(alert); ask \
                its administrator whether the issuer '\(identity.certificate.issuer)' is trusted there.
                """
            } else {
                "\(peer) demands a client certificate (alert \(alert)), and none was given."
            }
        return CertificateProviderError(
            .rejected, message, provider: credentials?.identity.provenance.provider, nativeCode: Int(alert.rawValue),
            underlying: underlying)
    }

    private func connectionFailure(_ error: any Error, to peer: String) -> CertificateProviderError {
        let attempts = (error as? NIOConnectionError)?.connectionErrors.map(\.error) ?? [error]
        guard let last = attempts.last else {
            return CertificateProviderError(
                .unavailable, "The name '\(host)' has no address; check it and the name service.", underlying: error)
        }
        if case ChannelError.connectTimeout = last { return failure(last, certificateRequested: false) }
        let reason = (last as? IOError).map { String(cString: strerror($0.errnoCode)) } ?? "\(last)"
        return CertificateProviderError(.unavailable, "Cannot connect to \(peer): \(reason).", underlying: error)
    }
}

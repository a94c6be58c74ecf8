import CertificateProviding
import CertificateTLSCore
import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL

extension ServerConnection {
    /// Says what went wrong with a connection.
    ///
    /// - Parameter isProxy: Whether it is one to a proxy, of whose name whoever has only configured a server knows
    ///   nothing.
    static func failure(
        _ error: any Error, _ server: ServerURL, isConnecting: Bool, isProxy: Bool = false
    ) -> CertificateProviderError {
        let name = isProxy ? "the proxy \(server.authority)" : server.authority
        let start = isProxy ? "The proxy \(server.authority)" : server.authority
        switch error {
        case let error as CertificateProviderError: return error
        case ChannelError.connectTimeout, ExchangeFailure.timedOut:
            return CertificateProviderError(
                .timedOut,
                "\(start) did not answer in time; see whether it is overloaded, or allow more with 'timeout'.")
        case ExchangeFailure.tooLarge(let limit):
            return CertificateProviderError(
                .protocolError, "The answer of \(name) is larger than \(limit) bytes, which no answer needs.")
        case ExchangeFailure.unanswered where !isConnecting, ChannelError.ioOnClosedChannel where !isConnecting:
            return CertificateProviderError(
                .unavailable, "\(start) closed the connection without an answer.", underlying: error)
        case ExchangeFailure.cutOff, ExchangeFailure.unanswered, ChannelError.eof, ChannelError.ioOnClosedChannel,
            ChannelError.alreadyClosed, NIOSSLError.uncleanShutdown,
            // A server that is just starting or ending, or a balancer with nobody behind it.
            NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake])):
            return CertificateProviderError(
                .unavailable,
                isConnecting
                    ? "\(start) closed the connection in the TLS handshake; see whether it is up, and check the port."
                    : "\(start) closed the connection before its answer was complete.", underlying: error)
        case is HTTPParserError:
            return CertificateProviderError(
                .protocolError, "The answer of \(name) is not HTTP, or is cut off.", underlying: error)
        case let error as NIOConnectionError:
            guard let last = error.connectionErrors.last?.error else {
                return CertificateProviderError(
                    .unavailable,
                    "The \(isProxy ? "proxy's " : "")name '\(server.host)' has no address; check it and the name service.",
                    underlying: error)
            }
            return failure(last, server, isConnecting: isConnecting, isProxy: isProxy)
        case let error as IOError:
            let reason = String(cString: strerror(error.errnoCode))
            return CertificateProviderError(
                .unavailable, "The connection to \(name) \(isConnecting ? "cannot be made" : "broke"): \(reason).",
                underlying: error)
        default:
            return CertificateProviderError(tlsError: error, from: name)
                ?? CertificateProviderError(
                    .unavailable, "The connection to \(name) failed: \(error).", underlying: error)
        }
    }
}

import CertificateProviding
import CertificateTLS
import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL

extension ServerConnection {
    /// Returns the error for a failed connection.
    ///
    /// - Parameters:
    ///   - names: The settings that the message names.
    ///   - proxy: The proxy that the connection is to; `nil` for the server itself. The message then says so and where it is set,
    ///     since the user may not know its name.
    ///   - key: The key of the client certificate; `nil` without one.
    static func failure(
        _ error: any Error, _ server: ServerURL, _ names: ServerSettingNames, isConnecting: Bool,
        proxy: HTTPProxy? = nil, key: PublicKeyInfo? = nil
    ) -> ProviderError {
        let place = proxy.map { "proxy \(server.authority) (\($0.setting))" }
        let name = place.map { "the " + $0 } ?? server.authority
        let start = place.map { "The " + $0 } ?? server.authority
        let address = proxy?.setting ?? names.address
        switch error {
        case let error as ProviderError: return error
        case ChannelError.connectTimeout, ExchangeFailure.timedOut:
            return ProviderError(
                .timedOut, "\(start) did not answer in time; \(names.adviceForSlowness).")
        case ExchangeFailure.tooLarge(let limit):
            return ProviderError(
                .protocolError,
                "The answer of \(name) is larger than the limit of \(limit) bytes; check \(address).")
        case ExchangeFailure.unanswered where !isConnecting, ChannelError.ioOnClosedChannel where !isConnecting:
            return ProviderError(
                .unavailable, "\(start) closed the connection without an answer; try again later.", underlying: error)
        case ExchangeFailure.cutOff, ExchangeFailure.unanswered, ChannelError.eof, ChannelError.ioOnClosedChannel,
            ChannelError.alreadyClosed, NIOSSLError.uncleanShutdown,
            // A server that is starting or stopping, or a load balancer without a backend.
            NIOSSLError.handshakeFailed(.sslError([.eofDuringHandshake])):
            return ProviderError(
                .unavailable,
                isConnecting
                    ? "\(start) closed the connection in the TLS handshake; check that it is up, and check the port."
                    : "\(start) closed the connection before its answer was complete; try again later.",
                underlying: error)
        case is HTTPParserError:
            return ProviderError(
                .protocolError, "The answer of \(name) is not HTTP, or is cut off; check \(address).",
                underlying: error)
        case let error as NIOConnectionError:
            guard let last = error.connectionErrors.last?.error else {
                return ProviderError(
                    .unavailable,
                    "The \(proxy == nil ? "" : "proxy's ")name '\(server.host)' has no address; check it and the name "
                        + "service.",
                    underlying: error)
            }
            return failure(last, server, names, isConnecting: isConnecting, proxy: proxy, key: key)
        case let error as IOError:
            let reason = errorText(error.errnoCode)
            return ProviderError(
                .unavailable,
                isConnecting
                    ? "The connection to \(name) cannot be made: \(reason). Check \(address), and that it is up."
                    : "The connection to \(name) broke: \(reason). Try again later.",
                underlying: error)
        default:
            return ProviderError(tlsError: error, from: name, with: key)
                ?? ProviderError(
                    .unavailable, "The connection to \(name) failed: \(error).", underlying: error)
        }
    }
}

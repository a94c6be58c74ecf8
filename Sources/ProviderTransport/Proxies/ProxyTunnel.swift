import CertificateProviding
import NIOCore
import NIOExtras
import NIOHTTP1

/// Asks a proxy for a tunnel (RFC 9110, section 9.3.6), by `NIOHTTP1ProxyConnectHandler`.
struct ProxyTunnel {
    let proxy: HTTPProxy
    let server: ServerURL
    let names: ServerSettingNames

    /// Opens a tunnel over a connection to the proxy. Call it on the channel's event loop.
    ///
    /// - Parameter prepare: Adds the handlers for the connection inside the tunnel.
    func open(
        on channel: any Channel, before deadline: NIODeadline, _ prepare: @escaping (any Channel) throws -> Void
    ) -> EventLoopFuture<Void> {
        let opened = channel.eventLoop.makePromise(of: Void.self)
        let encoder = HTTPRequestEncoder()
        // In TLS the client is the first to speak: whatever follows the proxy's answer is not the server's.
        let decoder = ByteToMessageHandler(HTTPResponseDecoder(leftOverBytesStrategy: .fireError))
        let answer = ProxyAnswer()
        var headers: HTTPHeaders = ["Host": hostAndPort(server.host, server.port)]
        if let authorization = proxy.authorization { headers.add(name: "Proxy-Authorization", value: authorization) }
        let host = server.host.contains(":") ? "[\(server.host)]" : server.host
        let tunnel = NIOHTTP1ProxyConnectHandler(
            targetHost: host, targetPort: server.port, headers: headers, deadline: deadline, promise: opened)
        let pipeline = channel.pipeline.syncOperations
        do { try pipeline.addHandlers(encoder, decoder, answer, tunnel) } catch { opened.fail(error) }
        return opened.futureResult.assumeIsolated()
            .flatMap { pipeline.removeHandler(decoder) }
            .flatMap { pipeline.removeHandler(encoder) }
            .flatMap { pipeline.removeHandler(answer) }
            .flatMapThrowing {
                // Something may have followed the answer.
                guard channel.isActive, answer.error == nil else { throw answer.error ?? ChannelError.eof }
                try prepare(channel)
            }
            .flatMapErrorThrowing { throw failure($0, answer) }
            .nonisolated()
    }

    private func failure(_ error: any Error, _ answer: ProxyAnswer) -> ProviderError {
        if let status = answer.status, !(200..<300).contains(status) { return proxy.refusal(status, of: server) }
        switch answer.error ?? error {
        case is HTTPParserError, is ByteToMessageDecoderError:
            return ProviderError(
                .protocolError,
                "The proxy \(proxy.server.authority) does not answer in HTTP to the request for a connection to "
                    + "\(server.authority); check that \(proxy.setting) names an HTTP proxy.",
                underlying: error)
        case let error as NIOHTTP1ProxyConnectHandler.Error where error == .httpProxyHandshakeTimeout():
            return ServerConnection.failure(
                ExchangeFailure.timedOut, proxy.server, names, isConnecting: true, proxy: proxy)
        case let error as IOError:
            return ServerConnection.failure(error, proxy.server, names, isConnecting: true, proxy: proxy)
        default:
            return ProviderError(
                .unavailable,
                "The proxy \(proxy.server.authority) closed the connection before the tunnel to \(server.authority) "
                    + "was open; look for the reason in its log.", underlying: error)
        }
    }
}

/// Notes what the errors of `NIOHTTP1ProxyConnectHandler` do not tell: the status of a refusal, and the error of the
/// connection.
private final class ProxyAnswer: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias InboundOut = HTTPClientResponsePart

    private(set) var status: Int?
    private(set) var error: (any Error)?

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if case .head(let head) = unwrapInboundIn(data) { status = Int(head.status.code) }
        context.fireChannelRead(data)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        self.error = self.error ?? error
        // It ends the wait for the answer, which an error alone does not.
        context.close(promise: nil)
    }
}

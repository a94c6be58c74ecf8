import CertificateProviding
import NIOCore
import NIOHTTP1

/// Asks a proxy for a tunnel (RFC 9110, section 9.3.6), and removes itself from the pipeline when the tunnel is open.
final class ProxyTunnel: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPClientResponsePart
    typealias OutboundOut = HTTPClientRequestPart
    typealias Codec = (encoder: HTTPRequestEncoder, decoder: ByteToMessageHandler<HTTPResponseDecoder>)

    private let proxy: HTTPProxy
    private let server: ServerURL
    private let codec: Codec
    private let opened: EventLoopPromise<Void>
    private let prepare: (any Channel) throws -> Void
    private var timer: Scheduled<Void>?

    private init(
        _ proxy: HTTPProxy, _ server: ServerURL, _ codec: Codec, _ opened: EventLoopPromise<Void>,
        _ prepare: @escaping (any Channel) throws -> Void
    ) {
        (self.proxy, self.server, self.codec, self.opened, self.prepare) = (proxy, server, codec, opened, prepare)
    }

    /// Opens a tunnel over a connection to the proxy. Call it on the channel's event loop.
    ///
    /// - Parameter prepare: Adds the handlers for the connection inside the tunnel.
    static func open(
        through proxy: HTTPProxy, to server: ServerURL, on channel: any Channel, before deadline: NIODeadline,
        _ prepare: @escaping (any Channel) throws -> Void
    ) -> EventLoopFuture<Void> {
        let opened = channel.eventLoop.makePromise(of: Void.self)
        // In TLS the client is the first to speak: whatever follows the proxy's answer is not the server's.
        let codec = (HTTPRequestEncoder(), ByteToMessageHandler(HTTPResponseDecoder(leftOverBytesStrategy: .fireError)))
        let tunnel = ProxyTunnel(proxy, server, codec, opened, prepare)
        tunnel.timer = channel.eventLoop.scheduleTask(deadline: deadline) {
            channel.pipeline.fireErrorCaught(ExchangeFailure.timedOut)
        }
        do { try channel.pipeline.syncOperations.addHandlers(codec.0, codec.1, tunnel) } catch { opened.fail(error) }
        return opened.futureResult
    }

    func handlerAdded(context: ChannelHandlerContext) {
        guard context.channel.isActive else { return fail(closed, context) }
        let target = hostAndPort(server.host, server.port)
        var headers: HTTPHeaders = ["Host": target]
        if let authorization = proxy.authorization { headers.add(name: "Proxy-Authorization", value: authorization) }
        let head = HTTPRequestHead(version: .http1_1, method: .CONNECT, uri: target, headers: headers)
        context.write(wrapOutboundOut(.head(head)), promise: nil)
        context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head):
            let status = Int(head.status.code)
            if !(200..<300).contains(status) { fail(proxy.refusal(status, of: server), context) }
        // The body of a refusal.
        case .body: break
        case .end: if context.channel.isActive { makeWay(context) }
        }
    }

    private func makeWay(_ context: ChannelHandlerContext) {
        timer?.cancel()
        let pipeline = context.pipeline.syncOperations
        pipeline.removeHandler(codec.decoder).assumeIsolated()
            .flatMap { pipeline.removeHandler(self.codec.encoder) }
            .flatMapThrowing {
                // Something may have followed the answer.
                guard context.channel.isActive else { throw self.closed }
                try self.prepare(context.channel)
            }
            .flatMap { pipeline.removeHandler(self) }
            .nonisolated().cascade(to: opened)
    }

    func channelInactive(context: ChannelHandlerContext) {
        fail(closed, context)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        let failure =
            switch error {
            case is HTTPParserError, is ByteToMessageDecoderError:
                CertificateProviderError(
                    .protocolError,
                    "The proxy \(proxy.server.authority) does not answer in HTTP to the request for a connection to "
                        + "\(server.authority); check that 'proxy' names an HTTP proxy.",
                    underlying: error)
            default: ServerConnection.failure(error, proxy.server, isConnecting: true, isProxy: true)
            }
        fail(failure, context)
    }

    private func fail(_ error: any Error, _ context: ChannelHandlerContext) {
        timer?.cancel()
        opened.fail(error)
        context.close(promise: nil)
    }

    private var closed: CertificateProviderError {
        CertificateProviderError(
            .unavailable,
            "The proxy \(proxy.server.authority) closed the connection before the tunnel to \(server.authority) was "
                + "open.")
    }
}

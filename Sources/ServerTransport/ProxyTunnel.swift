import CertificateProviding
import NIOCore

/// Asks a proxy for a tunnel (RFC 9110, section 9.3.6), and makes way for what goes through it.
final class ProxyTunnel: ChannelInboundHandler, RemovableChannelHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let proxy: HTTPProxy
    private let server: ServerURL
    private let opened: EventLoopPromise<Void>
    private let prepare: (any Channel) throws -> Void
    private var timer: Scheduled<Void>?
    private var head: [UInt8] = []

    /// More than any proxy says before the tunnel begins.
    private static let maximumHead = 16 * 1024

    private init(
        _ proxy: HTTPProxy, _ server: ServerURL, _ opened: EventLoopPromise<Void>,
        _ prepare: @escaping (any Channel) throws -> Void
    ) {
        (self.proxy, self.server, self.opened, self.prepare) = (proxy, server, opened, prepare)
    }

    /// Opens a tunnel over a connection to the proxy. To be called on the channel's event loop.
    ///
    /// - Parameter prepare: Sets up what goes through the tunnel.
    static func open(
        through proxy: HTTPProxy, to server: ServerURL, on channel: any Channel, before deadline: NIODeadline,
        _ prepare: @escaping (any Channel) throws -> Void
    ) -> EventLoopFuture<Void> {
        let opened = channel.eventLoop.makePromise(of: Void.self)
        let tunnel = ProxyTunnel(proxy, server, opened, prepare)
        tunnel.timer = channel.eventLoop.scheduleTask(deadline: deadline) {
            channel.pipeline.fireErrorCaught(ExchangeFailure.timedOut)
        }
        do { try channel.pipeline.syncOperations.addHandler(tunnel) } catch { opened.fail(error) }
        return opened.futureResult
    }

    func handlerAdded(context: ChannelHandlerContext) {
        guard context.channel.isActive else { return fail(closed, context) }
        let target = "\(server.host.contains(":") ? "[\(server.host)]" : server.host):\(server.port)"
        var lines = ["CONNECT \(target) HTTP/1.1", "Host: \(target)"]
        if let authorization = proxy.authorization { lines.append("Proxy-Authorization: \(authorization)") }
        let request = lines.map { $0 + "\r\n" }.joined() + "\r\n"
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: request)), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let start = max(0, head.count - 3)
        head += unwrapInboundIn(data).readableBytesView
        guard let end = Self.end(of: head, from: start) else {
            if head.count > Self.maximumHead { fail(strange("never comes to the end of its answer"), context) }
            return
        }
        guard let status = Self.status(of: head) else { return fail(strange("does not answer in HTTP"), context) }
        guard (200..<300).contains(status) else { return fail(proxy.refusal(status, of: server), context) }
        // In TLS the client is the first to speak.
        guard end == head.count else { return fail(strange("sends what is not the server's"), context) }
        timer?.cancel()
        do {
            try prepare(context.channel)
            context.pipeline.syncOperations.removeHandler(self, promise: opened)
        } catch {
            fail(error, context)
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        fail(closed, context)
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        fail(ServerConnection.failure(error, proxy.server, isConnecting: true, isProxy: true), context)
    }

    private func fail(_ error: any Error, _ context: ChannelHandlerContext) {
        timer?.cancel()
        opened.fail(error)
        context.close(promise: nil)
    }

    private var closed: CertificateProviderError {
        CertificateProviderError(
            .unavailable,
            "The proxy \(proxy.server.authority) closed the connection before there was one to \(server.authority).")
    }

    private func strange(_ behaviour: String) -> CertificateProviderError {
        CertificateProviderError(
            .protocolError,
            "The proxy \(proxy.server.authority) \(behaviour), asked for a connection to \(server.authority); see whether "
                + "'proxy' is right, and an HTTP proxy.")
    }

    /// Where the empty line ends that ends the header.
    private static func end(of head: [UInt8], from start: Int) -> Int? {
        head.indices.dropFirst(start).first { index in
            index + 4 <= head.count && head[index..<index + 4].elementsEqual([0x0d, 0x0a, 0x0d, 0x0a])
        }.map { $0 + 4 }
    }

    /// Of `HTTP/1.1 200 Connection established`.
    private static func status(of head: [UInt8]) -> Int? {
        let words = head.prefix { $0 != 0x0d }.split(separator: 0x20, maxSplits: 2)
        guard words.count >= 2, words[0].starts(with: "HTTP/1.".utf8), words[1].count == 3 else { return nil }
        return Int(String(decoding: words[1], as: UTF8.self)).flatMap { (100..<600).contains($0) ? $0 : nil }
    }
}

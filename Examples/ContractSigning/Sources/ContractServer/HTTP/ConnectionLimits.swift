import HTTPTypes
import NIOCore
import NIOHTTPTypes

/// Ends connections that are silent or slow, and those whose request is answered before all of it is there, such as one with a body
/// that is too long: what follows on such a connection is the rest of the body, not a request.
final class ConnectionLimits: ChannelDuplexHandler, RemovableChannelHandler {
    typealias InboundIn = HTTPRequestPart
    typealias InboundOut = HTTPRequestPart
    typealias OutboundIn = HTTPResponsePart
    typealias OutboundOut = HTTPResponsePart

    /// For the handshake and the head of the first request, and for a body, which has more time the longer it is. A head behind the
    /// first one has the time of an idle connection.
    static let time = TimeAmount.seconds(30)
    /// The least of a body, in bytes a second.
    static let rate = 16 * 1024
    /// What a client sends after the last answer is read and dropped until it closes, for this long: else it could lose the answer.
    static let lingering = TimeAmount.seconds(10)

    /// Counts of requests that are there whole, and of answers: a client may send several requests at once.
    private var (requests, answers) = (0, 0)
    /// Whether the answer that is written began before its request was there whole.
    private var isLast = false
    private var isLingering = false
    private var deadline: NIODeadline?
    private var task: Scheduled<Void>?

    func handlerAdded(context: ChannelHandlerContext) {
        allow(Self.time, context)
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        task?.cancel()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let part = unwrapInboundIn(data)
        guard !isLingering else { return }
        switch part {
        case .head: allow(Self.time, context)
        case .body(let bytes):
            deadline = deadline.map { $0 + .milliseconds(Int64(bytes.readableBytes * 1000 / Self.rate)) }
        case .end:
            requests += 1
            deadline = nil
        }
        context.fireChannelRead(data)
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        // The reader of the connection may have stopped.
        guard !isLingering else { return context.read() }
        context.fireChannelReadComplete()
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        switch unwrapOutboundIn(data) {
        case .head(var response):
            isLast = answers == requests
            if isLast { response.headerFields[.connection] = "close" }
            context.write(wrapOutboundOut(.head(response)), promise: promise)
        case .body: context.write(data, promise: promise)
        case .end:
            answers += 1
            guard isLast else { return context.write(data, promise: promise) }
            context.writeAndFlush(data, promise: promise)
            // Bytes that arrive after a close reset the connection, and the client loses what it has not yet read: so the client closes.
            context.close(mode: .output, promise: nil)
            isLingering = true
            allow(Self.lingering, context)
            context.read()
        }
    }

    private func allow(_ time: TimeAmount, _ context: ChannelHandlerContext) {
        deadline = context.eventLoop.now + time
        task?.cancel()
        wait(context)
    }

    private func wait(_ context: ChannelHandlerContext) {
        guard let deadline else { return }
        task = context.eventLoop.assumeIsolated().scheduleTask(deadline: deadline) {
            // None while a request is answered; later, when more of a body has come.
            guard let deadline = self.deadline else { return }
            guard deadline <= context.eventLoop.now else { return self.wait(context) }
            context.close(promise: nil)
        }
    }
}

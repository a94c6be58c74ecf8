import NIOCore

/// The bytes of one connection. The next message is read when the answer to the last one is written.
final class TokenChannel: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let connection: TokenConnection
    /// For a message from its first byte to its last, and for the writing of an answer.
    private let limit: TimeAmount
    private var received: [UInt8] = []
    private var hasVersion = false
    private var isAnswering = false
    private var timer: Scheduled<Void>?
    private let isRunning: @Sendable () -> Bool
    private var watch: Scheduled<Void>?

    /// The highest version of the protocol. It has no other calls than version 0 that the token has.
    private static let version: UInt8 = 1

    private static let interval = TimeAmount.seconds(15)

    /// - Parameter isRunning: Whether the process that has connected still runs. Another one may have the connection.
    init(_ connection: TokenConnection, limit: TimeAmount, isRunning: @escaping @Sendable () -> Bool) {
        (self.connection, self.limit, self.isRunning) = (connection, limit, isRunning)
    }

    func channelActive(context: ChannelHandlerContext) {
        watchProcess(context)
        proceed(context)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        received += unwrapInboundIn(data).readableBytesView
    }

    func channelReadComplete(context: ChannelHandlerContext) { proceed(context) }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.inputClosed) = event as? ChannelEvent { context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    func handlerRemoved(context: ChannelHandlerContext) {
        timer?.cancel()
        watch?.cancel()
    }

    private func watchProcess(_ context: ChannelHandlerContext) {
        watch = context.eventLoop.assumeIsolated().scheduleTask(in: Self.interval) { [self] in
            if isRunning() { watchProcess(context) } else { context.close(promise: nil) }
        }
    }

    private func startTimer(_ context: ChannelHandlerContext) {
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: limit) { context.close(promise: nil) }
    }

    private func stopTimer() {
        timer?.cancel()
        timer = nil
    }

    private func proceed(_ context: ChannelHandlerContext) {
        guard !isAnswering, context.channel.isActive else { return }
        if !hasVersion, let version = received.first {
            received.removeFirst()
            hasVersion = true
            stopTimer()
            write([min(version, Self.version)], context)
            return
        }
        do throws(RPCFrame.TooLarge) {
            if let frame = try RPCFrame.take(from: &received) {
                stopTimer()
                return answer(frame, context)
            }
        } catch {
            return context.close(promise: nil)
        }
        if timer == nil, !hasVersion || !received.isEmpty { startTimer(context) }
        context.read()
    }

    private func answer(_ frame: RPCFrame, _ context: ChannelHandlerContext) {
        isAnswering = true
        let promise = context.eventLoop.makePromise(of: [UInt8]?.self)
        promise.completeWithTask { [connection] in await connection.answer(frame.body) }
        promise.futureResult.assumeIsolated().whenSuccess { [self] answer in
            guard let answer else { return context.close(promise: nil) }
            write(RPCFrame(number: frame.number, body: answer).bytes, context)
        }
    }

    private func write(_ bytes: [UInt8], _ context: ChannelHandlerContext) {
        isAnswering = true
        startTimer(context)
        context.writeAndFlush(wrapOutboundOut(context.channel.allocator.buffer(bytes: bytes)))
            .assumeIsolated().whenComplete { [self] result in
                stopTimer()
                isAnswering = false
                if case .failure = result { context.close(promise: nil) } else { proceed(context) }
            }
    }
}

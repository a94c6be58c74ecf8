import NIOCore

/// Stands between the socket and the TLS handler, for three moments that SwiftNIO SSL takes too early.
///
/// - A peer may send its last handshake message, all of its bytes and the end at once. The end, which arrives while the peer's certificate is
///   verified, would be a failed handshake: it is held back until that is over.
/// - SwiftNIO SSL reads on while the peer's certificate is verified, and keeps what comes: a peer that is not admitted could fill the memory.
///   Beyond what a handshake needs, reading waits until that is over.
/// - A close would drop a close_notify that the socket has not taken yet, and the peer would take its bytes for cut off: the close waits.
final class WireEnd: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The outbound event that says that the handshake is complete.
    struct HandshakeIsComplete: Sendable {}

    /// How long a close waits.
    private static let closeTimeout = TimeAmount.seconds(10)

    private var isComplete = false
    private var isHeld = false
    /// The bytes that were read before the handshake was complete, and whether reading waits for that.
    private var size = 0, isReadHeld = false
    /// A chain of certificates has at most 100 KiB in BoringSSL.
    static let largestHandshake = 256 << 10
    private var closed: EventLoopPromise<Void>?

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if !isComplete { size += unwrapInboundIn(data).readableBytes }
        context.fireChannelRead(data)
    }

    func read(context: ChannelHandlerContext) {
        if isComplete || size < Self.largestHandshake { context.read() } else { isReadHeld = true }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if !isComplete, case .some(.inputClosed) = event as? ChannelEvent {
            isHeld = true
        } else {
            context.fireUserInboundEventTriggered(event)
        }
    }

    func triggerUserOutboundEvent(context: ChannelHandlerContext, event: Any, promise: EventLoopPromise<Void>?) {
        guard event is HandshakeIsComplete else { return context.triggerUserOutboundEvent(event, promise: promise) }
        isComplete = true
        promise?.succeed()
        if isReadHeld { context.read() }
        guard isHeld else { return }
        // After the TLS handler has decoded all that came before it.
        let held = NIOLoopBound(context, eventLoop: context.eventLoop)
        context.eventLoop.execute { held.value.fireUserInboundEventTriggered(ChannelEvent.inputClosed) }
    }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard mode == .all, context.channel.isActive else { return context.close(mode: mode, promise: promise) }
        if let closed { return closed.futureResult.cascade(to: promise) }
        let closed = context.eventLoop.makePromise(of: Void.self)
        self.closed = closed
        closed.futureResult.cascade(to: promise)
        let held = NIOLoopBound(context, eventLoop: context.eventLoop)
        let timer = context.eventLoop.scheduleTask(in: Self.closeTimeout) { held.value.close(promise: nil) }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer())).whenComplete { _ in
            timer.cancel()
            held.value.close(promise: closed)
        }
    }
}

import NIOCore

/// Holds the end of a peer's bytes back while the handshake goes on. Stands before the TLS handler.
///
/// A peer may send its last handshake message, all of its bytes and the end at once. SwiftNIO SSL would take the end, which arrives while the
/// peer's certificate is verified, for a failed handshake.
final class EarlyEnd: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer

    /// The outbound event that says that the handshake is complete.
    struct HandshakeIsComplete: Sendable {}

    private var isComplete = false
    private var isHeld = false

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
        guard isHeld else { return }
        // After the TLS handler has decoded what came before it.
        let held = NIOLoopBound(context, eventLoop: context.eventLoop)
        context.eventLoop.execute { held.value.fireUserInboundEventTriggered(ChannelEvent.inputClosed) }
    }
}

import NIOCore
import NIOSSL
import NIOTLS

/// One end of a connection through a tunnel: passes what it reads to the other end, as fast as that writes it.
///
/// The end of what one end reads closes the writing side of the other, and a connection that ends closes the other one when that has
/// written all. A TLS peer that goes without close_notify may have been cut off: then both are closed.
///
/// Both ends are on one event loop, and their channels read nothing by themselves.
final class TunnelEnd: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The reactions of a TLS end to its handshake.
    struct Handshake {
        /// The time limit, from when the handler is added.
        var limit: TimeAmount
        /// Its place among the handshakes in progress, which is free when it is over.
        var place: AnyObject?
        var isComplete: (TunnelEnd, ChannelHandlerContext) -> Void
        /// Called at most once. After ``isComplete`` only for an error of TLS: with TLS 1.3, a server refuses a client then.
        var hasFailed: (any Error) -> Void
    }

    /// The time for writing the bytes that the other end had read when it was closed.
    private static let closeTimeout = TimeAmount.seconds(10)

    private var context: ChannelHandlerContext?
    private var handshake: Handshake?
    private var hasFailed: ((any Error) -> Void)?
    private var timer: Scheduled<Void>?
    private var other: TunnelEnd?
    /// Bytes that were read before there was another end.
    private var held: [ByteBuffer] = []
    private var isInputClosed = false
    /// The number of writes that are not done.
    private var unwritten = 0
    /// The directions that are closed when all is written.
    private var closing: CloseMode?
    private var failure: (any Error)?

    init(_ handshake: Handshake? = nil) { self.handshake = handshake }

    /// Joins two ends, and lets both read. If one is gone, the other one is closed.
    ///
    /// - Parameter header: Bytes that `b` gets before any of `a`.
    static func join(_ a: TunnelEnd, _ b: TunnelEnd, header: ByteBuffer? = nil) {
        (a.other, b.other) = (b, a)
        if let header { b.write(header) }
        for end in [a, b] {
            guard let other = end.other else { return }
            for bytes in end.held { other.write(bytes) }
            end.held = []
            other.context?.flush()
            if end.isInputClosed { other.finish(.output) }
        }
        for end in [a, b] where end.context?.channel.isActive != true { end.leave() }
        a.readOn()
        b.readOn()
    }

    /// Closes the connection when all is written.
    func finish() { finish(.all) }

    // MARK: - Events

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        if let handshake {
            timer = context.eventLoop.assumeIsolated().scheduleTask(in: handshake.limit) { [self] in
                failure = failure ?? ChannelError.connectTimeout(handshake.limit)
                self.context?.close(promise: nil)
            }
        }
        if context.channel.isActive { begin() }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        timer?.cancel()
        self.context = nil
        leave()
    }

    func channelActive(context: ChannelHandlerContext) {
        begin()
        context.fireChannelActive()
    }

    /// A handshake takes reading; SwiftNIO SSL goes on with it.
    private func begin() { if handshake != nil { context?.read() } }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let bytes = unwrapInboundIn(data)
        if let other { other.write(bytes) } else if closing == nil { held.append(bytes) }
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        other?.context?.flush()
        readOn()
        context.fireChannelReadComplete()
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        other?.readOn()
        context.fireChannelWritabilityChanged()
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.handshakeCompleted) = event as? TLSUserEvent, let handshake {
            timer?.cancel()
            self.handshake = nil
            hasFailed = handshake.hasFailed
            context.triggerUserOutboundEvent(WireEnd.HandshakeIsComplete(), promise: nil)
            handshake.isComplete(self, context)
        } else if case .some(.inputClosed) = event as? ChannelEvent {
            isInputClosed = true
            other?.finish(.output)
        }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        failure = failure ?? error
        if error is BoringSSLError { fail(error) }
        context.close(promise: nil)
    }

    private func fail(_ error: any Error) {
        let hasFailed = handshake?.hasFailed ?? hasFailed
        (handshake, self.hasFailed) = (nil, nil)
        hasFailed?(error)
    }

    func channelInactive(context: ChannelHandlerContext) {
        leave()
        context.fireChannelInactive()
    }

    // MARK: - Reading and writing

    private func readOn() {
        guard !isInputClosed, other?.context?.channel.isWritable == true else { return }
        context?.read()
    }

    private func write(_ bytes: ByteBuffer) {
        guard let context else { return }
        unwritten += 1
        context.write(wrapOutboundOut(bytes)).assumeIsolated().whenComplete { [self] _ in
            unwritten -= 1
            closeIfWritten()
        }
    }

    /// SwiftNIO drops unwritten bytes of a connection that is closed, or half-closed in the other direction.
    private func closeIfWritten() {
        guard unwritten == 0, let closing else { return }
        context?.close(mode: closing, promise: nil)
    }

    private func finish(_ mode: CloseMode) {
        guard let context, closing != .all else { return }
        closing = mode
        if mode == .all, unwritten > 0 {
            let channel = context.channel
            timer = context.eventLoop.scheduleTask(in: Self.closeTimeout) { channel.close(promise: nil) }
        }
        closeIfWritten()
    }

    /// The connection has ended.
    private func leave() {
        timer?.cancel()
        if handshake != nil { fail(failure ?? ChannelError.eof) }
        hasFailed = nil
        closing = .all
        held = []
        let other = other
        self.other = nil
        other?.other = nil
        other?.finish(.all)
    }
}

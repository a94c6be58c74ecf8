import NIOCore
import NIOEmbedded
import Testing

@testable import HostService

/// The handler between the socket and the TLS handler.
@Suite struct WireEndTests {
    /// Counts the reads that reach the socket.
    private final class Reads: ChannelOutboundHandler {
        typealias OutboundIn = ByteBuffer
        var count = 0
        func read(context: ChannelHandlerContext) { count += 1 }
    }

    @Test("Before the handshake is complete, no more is read than it needs")
    func aFloodBeforeTheEndOfTheHandshake() throws {
        let channel = EmbeddedChannel()
        let reads = Reads()
        try channel.pipeline.syncOperations.addHandlers([reads, WireEnd()])
        let part = ByteBuffer(repeating: 0, count: 32 << 10)
        for _ in 0..<WireEnd.largestHandshake / part.readableBytes {
            channel.read()
            try channel.writeInbound(part)
        }
        let before = reads.count
        #expect(before == WireEnd.largestHandshake / part.readableBytes)
        for _ in 0..<10 { channel.read() }
        #expect(reads.count == before)
        channel.triggerUserOutboundEvent(WireEnd.HandshakeIsComplete(), promise: nil)
        // The reading that waited, and later ones.
        #expect(reads.count == before + 1)
        channel.read()
        #expect(reads.count == before + 2)
        _ = try channel.finish()
    }
}

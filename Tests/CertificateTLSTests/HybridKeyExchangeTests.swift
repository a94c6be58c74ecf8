import CertificateProviding
import NIOCore
import NIOSSL
import Synchronization
import TestSupport
import Testing

@testable import CertificateTLS

/// Key exchange that a recording does not give away to a later quantum computer.
@Suite struct HybridKeyExchangeTests {
    /// Remembers what a server sends.
    private final class Recorder: ChannelOutboundHandler, Sendable {
        typealias OutboundIn = ByteBuffer
        let sent = Mutex<[UInt8]>([])

        func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
            sent.withLock { $0 += unwrapOutboundIn(data).readableBytesView }
            context.write(data, promise: promise)
        }
    }

    /// The group of the extension `key_share` in a ServerHello (RFC 8446, sections 4.1.3 and 4.2.8).
    private static func group(inServerHello bytes: [UInt8]) -> Int? {
        var buffer = ByteBuffer(bytes: bytes)
        // Record, handshake header, version and random.
        buffer.moveReaderIndex(forwardBy: 5 + 4 + 2 + 32)
        guard let session = buffer.readInteger(as: UInt8.self),
            buffer.readSlice(length: Int(session) + 2 + 1 + 2) != nil
        else { return nil }
        while let type = buffer.readInteger(as: UInt16.self), let size = buffer.readInteger(as: UInt16.self),
            let content = buffer.readSlice(length: Int(size))
        {
            if type == 51 { return content.getInteger(at: content.readerIndex, as: UInt16.self).map(Int.init) }
        }
        return nil
    }

    @Test("Two sides that have X25519MLKEM768 use it") func hybridKeyExchange() async throws {
        let pair = try Pair.of(.p256)
        let anchors = try authority.get().anchors
        let server = try NIOSSLContext(
            configuration: .makeServerConfiguration(
                presenting: TLSCredentials(pair.server), demandingClientCertificatesFrom: anchors))
        let client = try NIOSSLContext(
            configuration: .makeClientConfiguration(presenting: TLSCredentials(pair.client), trusting: anchors))
        let recorder = Recorder()
        try await withEventLoops(1) { group in
            try await withServer(on: group) { channel in
                try channel.pipeline.syncOperations.addHandler(recorder)
                try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: server))
                try channel.pipeline.syncOperations.addHandler(PeerNamer())
            } body: { port in
                _ = try await connect(client, port: port, on: group)
            }
        }
        // Of the registry of TLS groups.
        #expect(Self.group(inServerHello: recorder.sent.withLock(\.self)) == 0x11ec)
    }
}

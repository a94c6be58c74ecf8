import CertificateProviding
import NIOCore
import NIOEmbedded
import NIOPosix
import NIOSSL
import NIOTLS
import TestSupport
import Testing

@testable import CertificateTLS

/// The time limit of a server's handshakes.
@Suite(.timeLimit(.minutes(20))) struct HandshakeLimitTests {
    @Test(
        "A connection whose handshake is not complete in time is closed, and another one stays",
        arguments: [false, true])
    func limit(isComplete: Bool) throws {
        let channel = EmbeddedChannel(handler: HandshakeLimit(.seconds(10)))
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
        channel.embeddedEventLoop.advanceTime(by: .seconds(9))
        #expect(channel.isActive)
        if isComplete {
            channel.pipeline.fireUserInboundEventTriggered(TLSUserEvent.handshakeCompleted(negotiatedProtocol: nil))
        }
        channel.embeddedEventLoop.advanceTime(by: .seconds(1))
        #expect(channel.isActive == isComplete)
        _ = try? channel.finish()
    }

    @Test("A server ends the connection of a client that is silent, before and after its first message")
    func silentClients() async throws {
        let authority = try authority.get()
        let host = try await RotatingHost(presenting: try authority.issue("server"), trusting: [authority.root])
        let server = try host.tls.server { $0.shutdownTimeout = .milliseconds(1) }
        // The beginning of a record of a handshake.
        for beginning: [UInt8] in [[], [0x16, 0x03, 0x01, 0x02, 0x00, 0x01]] {
            try await withEventLoops { group in
                try await withServer(on: group) { channel in
                    try server.addHandlers(to: channel, handshakeWithin: .milliseconds(50))
                } body: { port in
                    let client = try await ClientBootstrap(group: group).connect(host: "127.0.0.1", port: port).get()
                    // A busy host may have closed it by then.
                    if !beginning.isEmpty { try? await client.writeAndFlush(ByteBuffer(bytes: beginning)) }
                    // Ends when the server does.
                    try await client.closeFuture.get()
                }
            }
        }
    }

    @Test("A client that completes its handshake in time is served")
    func otherClients() async throws {
        let authority = try authority.get()
        let host = try await RotatingHost(presenting: try authority.issue("server"), trusting: [authority.root])
        let client = try await RotatingHost(presenting: try authority.issue("client"), trusting: [authority.root])
        let server = try host.tls.server()
        try await withEventLoops { group in
            try await withServer(on: group) { channel in
                try server.addHandlers(to: channel, handshakeWithin: .minutes(10))
                try channel.pipeline.syncOperations.addHandler(PeerNamer())
            } body: { port in
                let met = try await client.connect(port: port, on: group)
                #expect(met.message == client.tls.identity.fingerprint)
            }
        }
    }
}

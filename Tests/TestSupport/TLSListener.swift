import NIOCore
public import NIOPosix
public import NIOSSL
import NIOTLS

/// A TLS server at a port of its own, which notes its connections and whom it has met.
public final class TLSListener: Sendable {
    private let channel: any Channel
    private let connections: AsyncStream<any Channel>
    private let peers: AsyncStream<[UInt8]>

    public var port: Int { channel.localAddress?.port ?? 0 }

    /// Runs `body` with a server, and closes that.
    public static func with<T>(
        _ configuration: TLSConfiguration, on group: MultiThreadedEventLoopGroup = .singleton,
        _ body: (TLSListener) async throws -> T
    ) async throws -> T {
        let server = try await TLSListener(configuration, group)
        do {
            let value = try await body(server)
            try await server.channel.close()
            return value
        } catch {
            try await server.channel.close()
            throw error
        }
    }

    private init(_ configuration: TLSConfiguration, _ group: MultiThreadedEventLoopGroup) async throws {
        let context = try NIOSSLContext(configuration: configuration)
        let (connections, accepted) = AsyncStream<any Channel>.makeStream()
        let (peers, met) = AsyncStream<[UInt8]>.makeStream()
        (self.connections, self.peers) = (connections, peers)
        channel = try await ServerBootstrap(group: group)
            .serverChannelOption(.backlog, value: 1024)
            .childChannelInitializer { channel in
                accepted.yield(channel)
                return channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context))
                    try channel.pipeline.syncOperations.addHandler(Recorder(met))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
    }

    /// The certificate, in DER, that the first client has shown. The client may be through with the handshake before the server
    /// is.
    public func firstPeer() async -> [UInt8]? { await peers.first { _ in true } }

    /// Closes the first connection, without a word of TLS.
    public func hangUp() async throws {
        guard let channel = await connections.first(where: { _ in true }) else {
            throw Subprocess.Failure(description: "nothing has connected")
        }
        try await channel.eventLoop.submit {
            try channel.pipeline.syncOperations.context(handlerType: NIOSSLServerHandler.self).close(promise: nil)
        }.get()
    }

    private final class Recorder: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        private let met: AsyncStream<[UInt8]>.Continuation

        init(_ met: AsyncStream<[UInt8]>.Continuation) { self.met = met }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            guard case .some(.handshakeCompleted) = event as? TLSUserEvent,
                let leaf = try? context.pipeline.syncOperations.nioSSL_peerCertificate(),
                let bytes = try? leaf.toDERBytes()
            else { return }
            met.yield(bytes)
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }
}

import Logging
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import ServiceIdentity
import ServiceLifecycle

/// Accepts connections until it is asked to stop, then lets those that are busy finish.
struct HTTPSServer: Service {
    typealias Connection = NIOAsyncChannel<HTTPServerRequestPart, HTTPServerResponsePart>

    let address: String
    let port: Int
    let identity: ServiceIdentity
    let tls: NIOSSLContext
    let onListening: @Sendable () -> Void
    let logger: Logger

    /// How long a peer may be silent, in the handshake as well as between two requests.
    private static let patience = TimeAmount.seconds(60)

    func run() async throws {
        let listener = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .bind(host: address, port: port) { [tls] channel in
                channel.eventLoop.makeCompletedFuture { try Self.makeConnection(on: channel, tls: tls) }
            }
        logger.notice("listening", metadata: ["port": "\(listener.channel.localAddress?.port ?? port)"])
        onListening()

        try await listener.executeThenClose { connections in
            try await withThrowingDiscardingTaskGroup { group in
                for try await connection in connections.cancelOnGracefulShutdown() {
                    let client = ClientConnection(connection, of: identity, logger: logger)
                    group.addTask { await client.serve() }
                }
            }
        }
    }

    private static func makeConnection(on channel: any Channel, tls: NIOSSLContext) throws -> Connection {
        let pipeline = channel.pipeline.syncOperations
        try pipeline.addHandler(IdleStateHandler(allTimeout: patience))
        try pipeline.addHandler(NIOSSLServerHandler(context: tls))
        try pipeline.addHandler(IdleConnectionCloser())
        try pipeline.configureHTTPServerPipeline()
        return try Connection(wrappingChannelSynchronously: channel)
    }
}

private final class IdleConnectionCloser: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is IdleStateHandler.IdleStateEvent { context.close(promise: nil) }
        context.fireUserInboundEventTriggered(event)
    }
}

import CertificateProviding
import CertificateTLS
import Logging
import NIOCore
import NIOHTTP1
import NIOPosix
import ServiceIdentity
import ServiceLifecycle

/// Accepts connections until it is asked to stop, then lets those that are busy finish.
struct HTTPSServer: Service {
    typealias Connection = NIOAsyncChannel<HTTPServerRequestPart, HTTPServerResponsePart>

    struct Accepted {
        var connection: Connection
        /// What the client will be shown. Should it change just before the handshake, the connection ends a little
        /// early.
        var presented: X509Certificate
    }

    let address: String
    let port: Int
    let identity: ServiceIdentity
    let tls: TLSServer
    let onListening: @Sendable () -> Void
    let logger: Logger

    /// How long a peer may be silent, in the handshake as well as between two requests.
    private static let timeout = TimeAmount.seconds(60)

    func run() async throws {
        let listener = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .bind(host: address, port: port) { [tls, identity] channel in
                channel.eventLoop.makeCompletedFuture {
                    let presented = identity.certificate
                    return Accepted(connection: try Self.makeConnection(on: channel, tls: tls), presented: presented)
                }
            }
        logger.notice("listening", metadata: ["port": "\(listener.channel.localAddress?.port ?? port)"])
        onListening()

        try await listener.executeThenClose { connections in
            try await withThrowingDiscardingTaskGroup { group in
                // Closing the listener ends the loop after the last accepted connection. Cancelling the loop would
                // drop those that wait in it, and NIO traps when it meets a connection that nobody has served.
                try await withGracefulShutdownHandler {
                    for try await accepted in connections {
                        let client = ClientConnection(accepted, of: identity, logger: logger)
                        group.addTask { await client.serve() }
                    }
                } onGracefulShutdown: {
                    listener.channel.close(promise: nil)
                }
            }
        }
    }

    private static func makeConnection(on channel: any Channel, tls: TLSServer) throws -> Connection {
        let pipeline = channel.pipeline.syncOperations
        try pipeline.addHandler(IdleStateHandler(allTimeout: timeout))
        try pipeline.addHandler(tls.makeHandler(for: channel))
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

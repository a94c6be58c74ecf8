import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS

/// A server and the means to connect to it.
struct Stack {
    private let listener: any Channel
    private let clientHandler: @Sendable () throws -> NIOSSLClientHandler
    private let clients: MultiThreadedEventLoopGroup

    init(
        server: TLSConfiguration, on servers: MultiThreadedEventLoopGroup, client: TLSConfiguration,
        on clients: MultiThreadedEventLoopGroup
    ) async throws {
        let serverContext = try NIOSSLContext(configuration: server)
        let clientContext = try NIOSSLContext(configuration: client)
        try await self.init(
            on: servers, and: clients, server: { _ in NIOSSLServerHandler(context: serverContext) },
            client: { try NIOSSLClientHandler(context: clientContext, serverHostname: "localhost") })
    }

    /// With other makers of the TLS handlers.
    init(
        on servers: MultiThreadedEventLoopGroup, and clients: MultiThreadedEventLoopGroup,
        server: @escaping @Sendable (any Channel) throws -> NIOSSLServerHandler,
        client: @escaping @Sendable () throws -> NIOSSLClientHandler
    ) async throws {
        (self.clients, clientHandler) = (clients, client)
        self.listener = try await ServerBootstrap(group: servers)
            .serverChannelOption(.backlog, value: 4096)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers([
                        try server(channel), Greeter(),
                    ])
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
    }

    func handshakes(_ count: Int, concurrency: Int) async throws {
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            for _ in 0..<concurrency {
                tasks.addTask { for _ in 0..<(count / concurrency) { try await handshake() } }
            }
            try await tasks.waitForAll()
        }
    }

    /// Ends when the server, which has then verified the client, has sent its byte.
    private func handshake() async throws {
        guard let address = listener.localAddress else { return }
        let loop = clients.next()
        let greeted = loop.makePromise(of: Void.self)
        let channel = try await ClientBootstrap(group: loop)
            .channelInitializer { [clientHandler] channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers([
                        try clientHandler(), Greeted(greeted),
                    ])
                }
            }
            .connect(to: address).get()
        try await greeted.futureResult.get()
        try await channel.close()
    }

    func close() async throws { try await listener.close() }
}

/// Sends one byte when the handshake is done.
private final class Greeter: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .handshakeCompleted? = event as? TLSUserEvent {
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: [0])), promise: nil)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

/// Waits for that byte.
private final class Greeted: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let promise: EventLoopPromise<Void>

    init(_ promise: EventLoopPromise<Void>) { self.promise = promise }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { promise.succeed() }
    func channelInactive(context: ChannelHandlerContext) { promise.fail(ChannelError.eof) }
    func errorCaught(context: ChannelHandlerContext, error: any Error) { promise.fail(error) }
}

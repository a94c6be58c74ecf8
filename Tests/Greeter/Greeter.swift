import CertprovKit
import Glibc
import Logging
import NIOCore
import NIOPosix
import ServiceLifecycle
import Synchronization
import UnixSignals

/// Greets each client that the property file admits, until SIGTERM.
@main struct Greeter: Service {
    let tls: TLSServer
    let port: Int
    let logger: Logger

    static func main() async {
        let logger = Logger(label: "greeter") { StreamLogHandler.standardError(label: $0) }
        do {
            guard CommandLine.arguments.count == 3, let port = Int(CommandLine.arguments[2]) else {
                logger.critical("usage: greeter FILE PORT")
                exit(64)
            }
            try await run(configuredBy: CommandLine.arguments[1], port: port, logger: logger)
        } catch {
            // An error that is thrown out of main would end the program with a crash report.
            logger.critical("greeter ends", metadata: ["reason": "\(error)"])
            exit(1)
        }
    }

    static func run(configuredBy file: String, port: Int, logger: Logger) async throws {
        let logon = try CertprovLogon(configuredBy: file, logger: logger)
        let server = Greeter(tls: try await logon.tls().server(), port: port, logger: logger)
        let services: [any Service] = [logon.renewal, logon.reloading(), server]
        let group = ServiceGroup(services: services, gracefulShutdownSignals: [.sigterm, .sigint], logger: logger)
        try await group.run()
    }

    func run() async throws {
        let connections = Connections()
        let listener = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { [tls] channel in
                channel.eventLoop.makeCompletedFuture {
                    try connections.add(channel)
                    try tls.addHandlers(to: channel, handshakeWithin: .seconds(10))
                    try channel.pipeline.syncOperations.addHandler(Greeting())
                }
            }
            .bind(host: "127.0.0.1", port: port).get()
        logger.notice("listening", metadata: ["port": "\(listener.localAddress?.port ?? port)"])
        try? await gracefulShutdown()
        try await listener.close()
    }
}

/// Counts the connections that are open. One that is too many is closed.
final class Connections: Sendable {
    struct TooMany: Error {}

    private static let maximum = 1000
    private let count = Mutex(0)

    func add(_ channel: any Channel) throws {
        try count.withLock { count in
            guard count < Self.maximum else { throw TooMany() }
            count += 1
        }
        channel.closeFuture.whenComplete { _ in self.count.withLock { $0 -= 1 } }
    }
}

/// Says hello to its client at each line, and ends the connection at an empty one.
final class Greeting: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let client = try? context.pipeline.syncOperations.tlsPeer()
        let greeting = ByteBuffer(string: "Hello, \(client?.certificate.subject ?? "client")\n")
        let isLast = unwrapInboundIn(data) == ByteBuffer(string: "\n")
        let channel = context.channel
        context.writeAndFlush(wrapOutboundOut(greeting)).whenComplete { _ in if isLast { channel.close(promise: nil) } }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

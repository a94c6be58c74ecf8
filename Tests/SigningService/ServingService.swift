import CertprovKit
import Foundation
import NIOCore
import NIOPosix
import NIOTLS
import ServiceLifecycle

/// A server with the identity, the trust and the peers of a property file, until SIGTERM. It greets each peer after the handshake,
/// and closes the connection.
///
/// Arguments: `serve PROPERTY-FILE PORT-FILE`, the last of which it writes.
enum ServingService {
    private final class Greeter: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            guard case .some(.handshakeCompleted) = event as? TLSUserEvent else { return }
            let channel = context.channel
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: "hello\n"))).whenComplete { _ in
                channel.close(promise: nil)
            }
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    static func run(_ file: String, _ portFile: String, until terminated: AsyncStream<Void>) async throws {
        let logon = try CertprovLogon(configuredBy: file)
        let tls = try await logon.tls().server()
        let renewal = Task { try await logon.renewal.run() }
        let listener = try await ServerBootstrap(group: .singletonMultiThreadedEventLoopGroup)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(tls.makeHandler(for: channel))
                    try channel.pipeline.syncOperations.addHandler(Greeter())
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        try Data("\(listener.localAddress?.port ?? 0)".utf8).write(to: URL(filePath: portFile), options: .atomic)
        for await _ in terminated { break }
        try await listener.close()
        renewal.cancel()
        try await renewal.value
    }
}

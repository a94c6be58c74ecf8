import CertificateProviding
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import TestSupport

@testable import CertificateTLS

/// An authority for all parties in the tests that trust each other.
let authority = Result { try TestAuthority() }

/// A server and a client with keys of one kind. RSA keys take long to make in a debug build, so they are made once.
struct Pair: Sendable {
    let server: Identity
    let client: Identity

    private static let pairs = Result {
        let authority = try authority.get()
        return try TestAuthority.KeyKind.allCases.reduce(into: [:]) { pairs, kind in
            pairs[kind] = Pair(
                server: try authority.issue("server", kind: kind), client: try authority.issue("client", kind: kind))
        }
    }

    static func of(_ kind: TestAuthority.KeyKind) throws -> Pair {
        try pairs.get()[kind] ?? { throw ProviderError(.notFound, "no such kind") }()
    }
}

extension TestAuthority {
    var anchors: TrustAnchors { .certificates([root]) }
}

/// Runs `body` with event loops of its own, and ends them.
@discardableResult func withEventLoops<T>(
    _ count: Int = 2, _ body: (MultiThreadedEventLoopGroup) async throws -> T
) async throws -> T {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: count)
    do {
        let value = try await body(group)
        try await group.shutdownGracefully()
        return value
    } catch {
        try await group.shutdownGracefully()
        throw error
    }
}

/// Runs `body` with the port of a server, and closes the server.
func withServer<T>(
    _ configuration: TLSConfiguration, on group: MultiThreadedEventLoopGroup, _ body: (Int) async throws -> T
) async throws -> T {
    let context = try NIOSSLContext(configuration: configuration)
    return try await withServer(on: group) { channel in
        try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context))
        try channel.pipeline.syncOperations.addHandler(PeerNamer())
    } body: {
        try await body($0)
    }
}

/// Runs `body` with the port of a server that treats its connections as `initialize` says.
func withServer<T>(
    on group: MultiThreadedEventLoopGroup, _ initialize: @escaping @Sendable (any Channel) throws -> Void,
    body: (Int) async throws -> T
) async throws -> T {
    let server = try await ServerBootstrap(group: group)
        .serverChannelOption(.backlog, value: 256)
        .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
        .childChannelInitializer { channel in channel.eventLoop.makeCompletedFuture { try initialize(channel) } }
        .bind(host: "127.0.0.1", port: 0).get()
    do {
        let value = try await body(server.localAddress?.port ?? 0)
        try await server.close()
        return value
    } catch {
        try await server.close()
        throw error
    }
}

/// Tells the client which certificate it presented, by the fingerprint, and closes the connection.
final class PeerNamer: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private let note: (TLSPeer?) -> Void

    /// - Parameter note: Gets each peer.
    init(_ note: @escaping (TLSPeer?) -> Void = { _ in }) { self.note = note }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case .some(.handshakeCompleted) = event as? TLSUserEvent else { return }
        let peer = try? context.pipeline.syncOperations.tlsPeer()
        note(peer)
        let leaf = peer?.certificate
        let name = leaf?.sha256Fingerprint.hexEncoded ?? "nobody"
        let channel = context.channel
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: name + "\n")))
            .whenComplete { _ in channel.close(promise: nil) }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

/// A client's view of one connection.
struct Encounter: Sendable {
    var version: TLSVersion?
    /// The fingerprint of the leaf that the server presented.
    var server: String
    /// The server's first message: the fingerprint of the leaf that it verified, if it is a ``PeerNamer``.
    var message: String
}

/// Connects, writes `greeting`, and waits for the server's first data: in TLS 1.3 only that proves that the server
/// accepted the client.
func connect(
    _ context: NIOSSLContext, port: Int, on group: MultiThreadedEventLoopGroup, greeting: String? = nil
) async throws -> Encounter {
    let promise = group.any().makePromise(of: Encounter.self)
    let connecting = ClientBootstrap(group: group)
        .connectTimeout(.minutes(10))
        .channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture {
                let sync = channel.pipeline.syncOperations
                try sync.addHandler(NIOSSLClientHandler(context: context, serverHostname: "localhost"))
                try sync.addHandler(EncounterHandler(promise, greeting: greeting))
            }
        }
        .connect(host: "127.0.0.1", port: port)
    connecting.whenFailure { promise.fail($0) }
    let encounter = try await promise.futureResult.get()
    try? await connecting.get().close()
    return encounter
}

final class EncounterHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private let promise: EventLoopPromise<Encounter>
    private let greeting: String?

    init(_ promise: EventLoopPromise<Encounter>, greeting: String?) {
        self.promise = promise
        self.greeting = greeting
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if case .some(.handshakeCompleted) = event as? TLSUserEvent, let greeting {
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: greeting)), promise: nil)
        }
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        do {
            let sync = context.pipeline.syncOperations
            let leaf = try sync.tlsPeer()?.certificate
            let text = String(buffer: unwrapInboundIn(data)).split(separator: "\n").first.map(String.init) ?? ""
            promise.succeed(
                Encounter(
                    version: try sync.nioSSL_tlsVersion(), server: leaf?.sha256Fingerprint.hexEncoded ?? "nobody",
                    message: text))
        } catch {
            promise.fail(error)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        promise.fail(error)
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) { promise.fail(ChannelError.eof) }
}

extension Identity {
    var fingerprint: String { certificate.sha256Fingerprint.hexEncoded }
}

enum Version: String, CaseIterable, Sendable {
    case tls12, tls13

    var nio: TLSVersion { self == .tls12 ? .tlsv12 : .tlsv13 }
    var opensslOption: String { self == .tls12 ? "-tls1_2" : "-tls1_3" }
}

extension TLSConfiguration {
    func only(_ version: Version) -> TLSConfiguration {
        var copy = self
        copy.minimumTLSVersion = version.nio
        copy.maximumTLSVersion = version.nio
        copy.shutdownTimeout = .milliseconds(100)
        return copy
    }
}

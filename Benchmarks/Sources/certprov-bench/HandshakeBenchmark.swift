import CertificateProviding
import CertificateTLS
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS

/// Mutual-TLS handshakes per second over loopback: client and server both with an `Identity`, and the same stack with
/// both given the PEM files. They take turns, so that whatever else the machine does meets all.
struct HandshakeBenchmark {
    let identity: Identity
    let key: String
    let chain: String
    let anchors: String

    private static let turns = 90
    private static let handshakesPerTurn = 80
    private static let concurrency = 4

    func run() async throws {
        // One loop for the servers and one for the clients: which of two a connection falls on would be luck.
        let (servers, clients) = (
            MultiThreadedEventLoopGroup(numberOfThreads: 1), MultiThreadedEventLoopGroup(numberOfThreads: 1)
        )
        let credentials = try TLSCredentials(identity)
        let rotating = RotatingTLSCredentials(credentials)
        // The same key, which now has to be asked for each signature as a token's would be.
        let atHome = try TLSCredentials(
            Identity(
                certificateChain: identity.certificateChain, key: HomeKey(inner: identity.key),
                provenance: identity.provenance))
        let trust = TrustAnchors.pemFile(anchors)
        let subjects: [(String, TLSConfiguration, TLSConfiguration)] = [
            (
                "pem",
                try withPEMFiles(
                    .makeServerConfiguration(presenting: credentials, demandingClientCertificatesFrom: trust)),
                try withPEMFiles(.makeClientConfiguration(presenting: credentials, trusting: trust))
            ),
            (
                "identity",
                try .makeServerConfiguration(presenting: credentials, demandingClientCertificatesFrom: trust),
                try .makeClientConfiguration(presenting: credentials, trusting: trust)
            ),
            (
                "rotating", try .makeServerConfiguration(presenting: rotating, demandingClientCertificatesFrom: trust),
                try .makeClientConfiguration(presenting: rotating, trusting: trust)
            ),
            (
                "home-key", try .makeServerConfiguration(presenting: atHome, demandingClientCertificatesFrom: trust),
                try .makeClientConfiguration(presenting: atHome, trusting: trust)
            ),
        ]
        let stacks = try await subjects.asyncMap { name, server, client in
            (name, try await Stack(server: server, on: servers, client: client, on: clients))
        }
        var rates: [String: [Double]] = [:]
        for turn in 0..<(Self.turns + 1) {
            // Whoever follows whom must not matter.
            for (name, stack) in stacks.shuffled() {
                let time = try await ContinuousClock().measure {
                    try await stack.handshakes(Self.handshakesPerTurn, concurrency: Self.concurrency)
                }
                // The first turn warms up.
                if turn > 0 { rates[name, default: []].append(Double(Self.handshakesPerTurn) / seconds(time)) }
            }
        }
        for (name, stack) in stacks {
            let own = rates[name] ?? []
            print("handshakes-\(name)", median(own))
            // Turn by turn, since the machine is faster at some times than at others.
            print("ratio-\(name)", median(zip(own, rates["pem"] ?? []).map { $0 / $1 }))
            try await stack.close()
        }
        try await servers.shutdownGracefully()
        try await clients.shutdownGracefully()
    }

    /// The same configuration in everything but where the chain and the key come from.
    private func withPEMFiles(_ base: TLSConfiguration) throws -> TLSConfiguration {
        var configuration = base
        configuration.certificateChain = try NIOSSLCertificate.fromPEMFile(chain).map { .certificate($0) }
        configuration.privateKey = .privateKey(try NIOSSLPrivateKey(file: key, format: .pem))
        configuration.sslContextCallback = nil
        return configuration
    }
}

/// Hides that a key can be exported.
private struct HomeKey: IdentityKey {
    let inner: any IdentityKey
    var publicKey: PublicKeyInfo { inner.publicKey }
    var signatureSchemes: [SignatureScheme] { inner.signatureSchemes }
    var location: KeyLocation { .token }

    func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(CertificateProviderError) -> [UInt8] {
        try await inner.signature(for: message, using: scheme)
    }
}

extension Array {
    fileprivate func asyncMap<T>(_ transform: (Element) async throws -> T) async rethrows -> [T] {
        var result: [T] = []
        for element in self { result.append(try await transform(element)) }
        return result
    }
}

/// A server and the means to connect to it.
private struct Stack {
    private let listener: any Channel
    private let context: NIOSSLContext
    private let clients: MultiThreadedEventLoopGroup

    init(
        server: TLSConfiguration, on servers: MultiThreadedEventLoopGroup, client: TLSConfiguration,
        on clients: MultiThreadedEventLoopGroup
    ) async throws {
        let serverContext = try NIOSSLContext(configuration: server)
        self.context = try NIOSSLContext(configuration: client)
        self.clients = clients
        self.listener = try await ServerBootstrap(group: servers)
            .serverChannelOption(.backlog, value: 256)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers([
                        NIOSSLServerHandler(context: serverContext), Greeter(),
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
            .channelInitializer { [context] channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers([
                        try NIOSSLClientHandler(context: context, serverHostname: "localhost"), Greeted(greeted),
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

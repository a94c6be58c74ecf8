import CertificateProviding
import CertificateTLS
import FaultyModuleControl
import Glibc
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import PKCS11TokenProvider
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(20))) struct EventLoopTests {
    private static let handshakes = TestLength.rounds(250, soak: 1000)

    /// Hundreds of handshakes wait for a token on both event loops of a server, which go on with everything else.
    @Test func aSlowTokenBlocksNoEventLoop() async throws {
        try Self.permitDescriptors(3 * Self.handshakes)
        let module = try FaultyModule.withIdentity()
        defer { module.control.release() }
        let authority = try FaultyModule.authority.get()
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let accepting = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(identity), demandingClientCertificatesFrom: .certificates([authority.root]))
        let client = try NIOSSLContext(
            configuration: .makeClientConfiguration(
                presenting: TLSCredentials(authority.issue("caller")), trusting: .certificates([authority.root])))
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let outcome = await Result {
            try await TLSListener.with(accepting, on: group) { server in
                module.control.hold("C_Sign")
                let handshakes = (0..<Self.handshakes).map { _ in
                    Self.handshake(client, port: server.port, on: group)
                }
                let look = await Result {
                    // As many as a token is ever given at once.
                    try await module.waitUntilHeld(16)
                    for loop in group.makeIterator() { #expect(try await loop.submit { true }.get()) }
                }
                module.control.release()
                // All of them, also where one fails: the event loops end after them.
                let ends = try await EventLoopFuture.whenAllComplete(handshakes, on: group.any()).get()
                try look.get()
                for end in ends { try end.get() }
            }
        }
        try await group.shutdownGracefully()
        try outcome.get()
        #expect(module.control.shared_uses() == 0)
    }

    /// Both ends of each connection are in this process.
    private static func permitDescriptors(_ count: Int) throws {
        var limit = rlimit()
        try #require(getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
        try #require(limit.rlim_max >= rlim_t(count), "the limit of open files cannot be raised to \(count)")
        limit.rlim_cur = max(limit.rlim_cur, rlim_t(count))
        try #require(setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
    }

    private static func handshake(
        _ context: NIOSSLContext, port: Int, on group: MultiThreadedEventLoopGroup
    ) -> EventLoopFuture<Void> {
        let promise = group.any().makePromise(of: Void.self)
        ClientBootstrap(group: group)
            .connectTimeout(.minutes(10))
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let sync = channel.pipeline.syncOperations
                    try sync.addHandler(NIOSSLClientHandler(context: context, serverHostname: "localhost"))
                    try sync.addHandler(HandshakeWaiter(promise))
                }
            }
            .connect(host: "127.0.0.1", port: port).whenFailure { promise.fail($0) }
        return promise.futureResult
    }
}

private final class HandshakeWaiter: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let promise: EventLoopPromise<Void>

    private var isComplete = false

    init(_ promise: EventLoopPromise<Void>) { self.promise = promise }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case .some(.handshakeCompleted) = event as? TLSUserEvent else { return }
        isComplete = true
        context.close(promise: nil)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        promise.fail(error)
        context.close(promise: nil)
    }

    func channelInactive(context: ChannelHandlerContext) {
        // Not before: the event loops end when all handshakes have.
        if isComplete { promise.succeed() } else { promise.fail(ChannelError.eof) }
    }
}

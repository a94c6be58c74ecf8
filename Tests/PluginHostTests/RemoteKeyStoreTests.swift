import CertificateProviding
import CertificateTLS
import Foundation
import Glibc
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import PluginHost
import Synchronization
import TestSupport
import Testing

/// A key store in a plugin, as the host uses it.
@Suite(.serialized, .enabled(if: TestLength.hasSeconds), .timeLimit(.minutes(5))) struct RemoteKeyStoreTests {
    private let directory: TemporaryDirectory
    private let host: PluginHost
    private let store: any KeyStore

    init() throws {
        directory = try TemporaryDirectory()
        let built = URL(filePath: try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe"))
            .deletingLastPathComponent().appending(path: "TestPlugin").path
        try directory.install("certprov-plugin-keys", copying: built)
        host = PluginHost(PluginDirectories([directory.path]), logger: ProviderEnvironment.testing().logger)
        let storage = InMemoryStorage()
        let descriptor = try #require(try host.keyStore("keys", ProviderParameters()))
        store = try ProviderRegistry(keyStores: [descriptor]).keyStores { _ in .testing(storage: storage) }.store(
            "keys:")
    }

    private func key() async throws -> any IdentityKey {
        try await store.make(.p256, label: "test", use: .signing, NoUserInteraction()) { _ in }
    }

    /// A deletion would report success otherwise, and leave the key.
    @Test func aStoreThatDoesNotAnswerStillHasItsKeys() async throws {
        let reference = store.reference(to: try await key())
        await host.shutdown()
        try directory.install("certprov-plugin-keys", "#!/bin/sh\nexit 3\n".utf8)
        #expect(store.holds(keyURI: reference.uri))
        #expect(!store.holds(keyURI: "other:x"))
        let failure = await error { try store.destroyStored(reference) }
        #expect(
            failure?.code == .unavailable && failure?.message.contains("status 3") == true,
            "\(String(describing: failure))")
    }

    /// One process signs for all of them.
    @Test func aThousandHandshakesAtOnce() async throws {
        let count = 1000
        var limit = rlimit(rlim_cur: 0, rlim_max: 0)
        getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        limit.rlim_cur = max(limit.rlim_cur, min(limit.rlim_max, rlim_t(4 * count)))
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        try #require(limit.rlim_cur >= 4 * count)

        let authority = try TestAuthority()
        let key = try await key()
        let chain = [
            try authority.certify(key.publicKey.derRepresentation, as: "client"), authority.intermediate,
        ]
        let identity = try Identity(certificateChain: chain, key: key, provenance: .init(provider: ProviderID("keys")))
        let server = try authority.issue("localhost")
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let trust = TrustAnchors.certificates([authority.root])
        let context = try NIOSSLContext(
            configuration: .makeServerConfiguration(
                presenting: try TLSCredentials(server), demandingClientCertificatesFrom: trust))
        let own = try NIOSSLContext(
            configuration: .makeClientConfiguration(presenting: try TLSCredentials(identity), trusting: trust))
        let listener = try await ServerBootstrap(group: group).serverChannelOption(.backlog, value: 4096)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandlers([NIOSSLServerHandler(context: context), Greeter()])
                }
            }.bind(host: "127.0.0.1", port: 0).get()
        let address = try #require(listener.localAddress)
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            for _ in 0..<count {
                tasks.addTask {
                    let greeted = group.next().makePromise(of: Void.self)
                    let channel = try await ClientBootstrap(group: group).channelInitializer { channel in
                        channel.eventLoop.makeCompletedFuture {
                            try channel.pipeline.syncOperations.addHandlers([
                                try NIOSSLClientHandler(context: own, serverHostname: "localhost"), Greeted(greeted),
                            ])
                        }
                    }.connect(to: address).get()
                    try await greeted.futureResult.get()
                    try await channel.close()
                }
            }
            try await tasks.waitForAll()
        }
        let all = try FileManager.default.contentsOfDirectory(atPath: "/proc")
        let plugins = all.count { process in
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(process)/exe"))
                == directory["certprov-plugin-keys"]
        }
        #expect(plugins == 1)
        try await listener.close()
        try await group.shutdownGracefully()
        await host.shutdown()
    }
}

/// Sends one byte when the handshake is done: the server has verified the client then.
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

import CertificateProviding
import CertificateTLS
import FaultyModuleControl
import NIOCore
import NIOPosix
import NIOSSL
import PKCS11TokenProvider
import TestSupport
import Testing

/// Handshakes with a token that takes longer to sign than the server is given to answer.
@Suite(.timeLimit(.minutes(20))) struct SlowSignatureTests {
    private static let versions = [TLSVersion.tlsv12, .tlsv13]

    @Test(arguments: versions) func theTimeOfTheTokenIsNotTheServers(version: TLSVersion) async throws {
        let module = try FaultyModule.withIdentity()
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.slow_down("C_Sign", 6000)
        let report = try await inTime { try await self.report(of: identity, version, within: .seconds(4)) }
        #expect(report.clientAuthentication != .notRequested && report.tlsVersion == version)
    }

    /// The token's own timeout ends it, and the error is the token's.
    @Test(arguments: versions) func aTokenThatHangsIsToBlame(version: TLSVersion) async throws {
        let module = try FaultyModule.withIdentity()
        defer { module.control.release() }
        let provider = try module.provider(["timeout": "8"])
        let identity = try await inTime { try await provider.getCertificate(NoUserInteraction()) }
        module.control.hold("C_Sign")
        do {
            _ = try await report(of: identity, version, within: .seconds(4))
            Issue.record("signed")
        } catch let error as ProviderError {
            #expect(error.code == .timedOut && error.message.contains("PKCS#11 module did not answer"), "\(error)")
        }
    }

    @Test("A digest is signed within the time of a signature") func aDigestIsBoundedByTheTimeout() async throws {
        let module = try FaultyModule.withIdentity()
        defer { module.control.release() }
        let provider = try module.provider(["timeout": "8"])
        let key = try await inTime { try await provider.getCertificate(NoUserInteraction()).key }
        #expect(key.signatureTimeout == .seconds(8))
        module.control.hold("C_Sign")
        #expect(await code { _ = try await key.signsDigestValidly() } == .timedOut)
    }

    @Test func aServerThatClosesDuringASignatureMayNotWaitForIt() async throws {
        let module = try FaultyModule.withIdentity()
        defer { module.control.release() }
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.hold("C_Sign")
        let server = try await Server(.tlsv12)
        async let outcome = Result {
            try await probe(identity, server, within: .seconds(600)).run()
        }
        try await module.waitUntilHeld(1)
        try await server.hangUp()
        let error = try #require(await outcome.failure as? ProviderError)
        #expect(error.message.contains("had been signing for"), "\(error)")
        module.control.release()
        try await server.close()
    }

    private func probe(_ identity: Identity, _ server: Server, within deadline: Duration) throws -> ConnectionProbe {
        var probe = ConnectionProbe(
            host: "localhost", port: server.port, presenting: try TLSCredentials(identity),
            trusting: .certificates([try FaultyModule.authority.get().root]))
        probe.deadline = deadline
        return probe
    }

    private func report(
        of identity: Identity, _ version: TLSVersion, within deadline: Duration
    ) async throws -> ConnectionReport {
        let server = try await Server(version)
        do {
            let report = try await probe(identity, server, within: deadline).run()
            try await server.close()
            return report
        } catch {
            try await server.close()
            throw error
        }
    }
}

/// A server that demands a certificate.
private final class Server: Sendable {
    private let listener: any Channel
    private let connections: AsyncStream<any Channel>

    var port: Int { listener.localAddress?.port ?? 0 }

    init(_ version: TLSVersion) async throws {
        let authority = try FaultyModule.authority.get()
        var configuration = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(authority.issue("localhost")),
            demandingClientCertificatesFrom: .certificates([authority.root]))
        (configuration.minimumTLSVersion, configuration.maximumTLSVersion) = (version, version)
        let context = try NIOSSLContext(configuration: configuration)
        let (connections, accepted) = AsyncStream<any Channel>.makeStream()
        self.connections = connections
        listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                accepted.yield(channel)
                return channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
    }

    func close() async throws { try await listener.close() }

    /// Closes the first connection, without a word of TLS.
    func hangUp() async throws {
        let channel = try #require(await connections.first { _ in true })
        try await channel.pipeline.syncOperationsRemovingTLS()
    }
}

extension ChannelPipeline {
    fileprivate func syncOperationsRemovingTLS() async throws {
        try await eventLoop.submit { [self] in
            try syncOperations.context(handlerType: NIOSSLServerHandler.self).close(promise: nil)
        }.get()
    }
}

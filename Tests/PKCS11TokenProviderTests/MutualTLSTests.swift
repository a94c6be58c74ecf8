import CertificateProviding
import CertificateTLS
import NIOCore
import NIOPosix
import NIOSSL
import NIOTLS
import TestSupport
import Testing

/// Handshakes in which both sides have their key on a token.
@Suite(.timeLimit(.minutes(20))) struct MutualTLSTests {
    struct Case: Sendable, CustomTestStringConvertible {
        let key: KeyCase
        let version: TLSVersion
        var testDescription: String { "\(key.testDescription), \(version)" }
    }

    static let cases = KeyCase.all.flatMap { key in
        [TLSVersion.tlsv12, .tlsv13].map { Case(key: key, version: $0) }
    }

    @Test(arguments: cases) func bothSidesHaveATokenIdentity(_ test: Case) async throws {
        let identity = try await TokenSetup(test.key.module, .main, test.key.kind).identity()
        let anchors = TrustAnchors.certificates([try TokenFarm.shared().authority.root])
        let credentials = try TLSCredentials(identity)
        var accepting = try TLSConfiguration.makeServerConfiguration(
            presenting: credentials, demandingClientCertificatesFrom: anchors)
        (accepting.minimumTLSVersion, accepting.maximumTLSVersion) = (test.version, test.version)
        let server = try await PeerRecorder(accepting)
        do {
            var probe = ConnectionProbe(
                host: "localhost", port: server.port, presenting: credentials, trusting: anchors)
            // Signatures of a software TPM come one after the other, and every test wants some.
            probe.deadline = .seconds(600)
            let report = try await probe.run()
            #expect(report.tlsVersion == test.version)
            #expect(report.serverCertificate == identity.certificate)
            #expect(await server.firstPeer() == identity.certificate.derRepresentation)
        } catch {
            try await server.close()
            throw error
        }
        try await server.close()
    }
}

/// A server that notes whom it has met.
private final class PeerRecorder: Sendable {
    private let channel: any Channel
    private let peers: AsyncStream<[UInt8]>

    var port: Int { channel.localAddress?.port ?? 0 }

    /// The client may be through with the handshake before the server is.
    func firstPeer() async -> [UInt8]? { await peers.first { _ in true } }

    init(_ configuration: TLSConfiguration) async throws {
        let context = try NIOSSLContext(configuration: configuration)
        let (peers, met) = AsyncStream<[UInt8]>.makeStream()
        self.peers = peers
        channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let handlers = channel.pipeline.syncOperations
                    try handlers.addHandler(NIOSSLServerHandler(context: context))
                    try handlers.addHandler(Recorder(met))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
    }

    func close() async throws { try await channel.close() }

    private final class Recorder: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        private let met: AsyncStream<[UInt8]>.Continuation

        init(_ met: AsyncStream<[UInt8]>.Continuation) { self.met = met }

        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            guard case .some(.handshakeCompleted) = event as? TLSUserEvent,
                let leaf = try? context.pipeline.syncOperations.nioSSL_peerCertificate(),
                let bytes = try? leaf.toDERBytes()
            else { return }
            met.yield(bytes)
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }
}

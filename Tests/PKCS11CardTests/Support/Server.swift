import CertificateProviding
import CertificateTLS
import NIOCore
import NIOPosix
import NIOSSL
import TestSupport

/// A server that demands a certificate of the card's authority.
final class Server: Sendable {
    private static let authority = Result { try TestAuthority() }
    private let listener: any Channel

    private init(_ card: Card, _ version: TLSVersion) async throws {
        var configuration = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(Self.authority.get().issue("localhost")),
            demandingClientCertificatesFrom: .pemFile(card.file("ca.pem")))
        (configuration.minimumTLSVersion, configuration.maximumTLSVersion) = (version, version)
        let context = try NIOSSLContext(configuration: configuration)
        listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
    }

    /// Makes a handshake.
    static func handshake(
        with identity: Identity, on card: Card, _ version: TLSVersion, within deadline: Duration = .seconds(10)
    ) async throws -> ConnectionReport {
        let server = try await Server(card, version)
        var probe = ConnectionProbe(
            host: "localhost", port: server.listener.localAddress?.port ?? 0, presenting: try TLSCredentials(identity),
            trusting: .certificates([try authority.get().root]))
        probe.deadline = deadline
        do {
            let report = try await probe.run()
            try await server.listener.close()
            return report
        } catch {
            try await server.listener.close()
            throw error
        }
    }
}

import CertificateProviding
import CertificateTLS
import NIOSSL
import TestSupport

/// A server that demands a certificate of the card's authority.
enum Server {
    private static let authority = Result { try TestAuthority() }

    /// Makes a handshake.
    static func handshake(
        with identity: Identity, on card: Card, _ version: TLSVersion, within deadline: Duration = .seconds(10)
    ) async throws -> ConnectionReport {
        var configuration = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(Self.authority.get().issue("localhost")),
            demandingClientCertificatesFrom: .pemFile(card.file("ca.pem")))
        (configuration.minimumTLSVersion, configuration.maximumTLSVersion) = (version, version)
        return try await TLSListener.with(configuration) { server in
            var probe = ConnectionProbe(
                host: "localhost", port: server.port, presenting: try TLSCredentials(identity),
                trusting: .certificates([try authority.get().root]))
            probe.deadline = deadline
            return try await probe.run()
        }
    }
}

import CertificateProviding
import CertificateTLS
import NIOSSL
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
        try await TLSListener.with(accepting) { server in
            var probe = ConnectionProbe(
                host: "localhost", port: server.port, presenting: credentials, trusting: anchors)
            // Signatures of a software TPM come one after the other, and every test wants some.
            probe.deadline = .seconds(600)
            let report = try await probe.run()
            #expect(report.tlsVersion == test.version)
            #expect(report.serverCertificate == identity.certificate)
            #expect(await server.firstPeer() == identity.certificate.derRepresentation)
        }
    }
}

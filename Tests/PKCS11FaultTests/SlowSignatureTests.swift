import CP11Kit
import CertificateProviding
import CertificateTLS
import FaultyModuleControl
import NIOSSL
import PKCS11TokenProvider
import TestSupport
import Testing

/// Handshakes with a token that takes longer to sign than the server is given to answer.
@Suite(.timeLimit(.minutes(20))) struct SlowSignatureTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    private static let versions = [TLSVersion.tlsv12, .tlsv13]

    @Test(arguments: versions) func theTimeOfTheTokenIsNotTheServers(version: TLSVersion) async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.slow_down("C_Sign", 6000)
        let report = try await inTime { try await self.report(of: identity, version, within: .seconds(4)) }
        #expect(report.clientAuthentication != .notRequested && report.tlsVersion == version)
    }

    /// The token's own timeout ends it, and the error is the token's.
    @Test(arguments: versions) func aTokenThatHangsIsToBlame(version: TLSVersion) async throws {
        defer { module.control.release() }
        let provider = try module.provider(["timeout": "8"])
        let identity = try await inTime { try await provider.getCertificate(NoUserInteraction()) }
        module.control.hold("C_Sign")
        let error = try #require(await failure { try await report(of: identity, version, within: .seconds(4)) })
        #expect(error.code == .timedOut && error.message.contains("PKCS#11 module did not answer"), "\(error)")
    }

    @Test("A digest is signed within the time of a signature") func aDigestIsBoundedByTheTimeout() async throws {
        defer { module.control.release() }
        let provider = try module.provider(["timeout": "8"])
        let key = try await inTime { try await provider.getCertificate(NoUserInteraction()).key }
        #expect(key.signatureTimeout == .seconds(8))
        module.control.hold("C_Sign")
        #expect(await code { _ = try await key.signsDigestValidly() } == .timedOut)
    }

    @Test func aServerThatClosesDuringASignatureMayNotWaitForIt() async throws {
        defer { module.control.release() }
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.hold("C_Sign")
        try await TLSListener.with(configuration(.tlsv12)) { server in
            async let outcome = failure {
                try await probe(identity, server, within: .seconds(600)).run()
            }
            try await module.waitUntilHeld(1)
            try await server.hangUp()
            let error = try #require(await outcome)
            #expect(error.message.contains("had been signing for"), "\(error)")
            module.control.release()
        }
    }

    /// Of a server that demands a certificate.
    private func configuration(_ version: TLSVersion) throws -> TLSConfiguration {
        let authority = try FaultyModule.authority.get()
        var configuration = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(authority.issue("localhost")),
            demandingClientCertificatesFrom: .certificates([authority.root]))
        (configuration.minimumTLSVersion, configuration.maximumTLSVersion) = (version, version)
        return configuration
    }

    private func probe(_ identity: Identity, _ server: TLSListener, within deadline: Duration) throws -> ConnectionProbe
    {
        var probe = ConnectionProbe(
            host: "localhost", port: server.port, presenting: try TLSCredentials(identity),
            trusting: .certificates([try FaultyModule.authority.get().root]))
        probe.deadline = deadline
        return probe
    }

    private func report(
        of identity: Identity, _ version: TLSVersion, within deadline: Duration
    ) async throws -> ConnectionReport {
        try await TLSListener.with(configuration(version)) {
            try await probe(identity, $0, within: deadline).run()
        }
    }
}

/// An RSA key on a token that knows neither PSS nor the raw operation.
@Suite(.timeLimit(.minutes(20))) struct TLSVersionTests {
    @Test(arguments: [false, true]) func aHandshakeIsOfTLS12(demandsTLS13: Bool) async throws {
        let module = try FaultyModule.withIdentity(FaultyModule.rsaIdentity.get())
        module.control.set_mechanisms(0, [CKM_RSA_PKCS], 1)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let authority = try FaultyModule.authority.get()
        let anchors = TrustAnchors.certificates([authority.root])
        var configuration = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(authority.issue("localhost")), demandingClientCertificatesFrom: anchors)
        if demandsTLS13 { configuration.minimumTLSVersion = .tlsv13 }
        let report = await Result {
            try await TLSListener.with(configuration) { server in
                var probe = try ConnectionProbe(
                    host: "localhost", port: server.port, presenting: TLSCredentials(identity), trusting: anchors)
                probe.deadline = .seconds(600)
                return try await probe.run()
            }
        }
        switch report {
        case .success(let report): #expect(!demandsTLS13 && report.tlsVersion == .tlsv12)
        case .failure(let error):
            let error = try #require(error as? ProviderError)
            #expect(demandsTLS13 && error.code == .unsupportedAlgorithm, "\(error)")
        }
        #expect(module.calls("C_Sign") > (demandsTLS13 ? 0 : 1))
    }
}

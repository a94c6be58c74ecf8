import CertificateProviding
import Enrolment
import RemoteMDMProvider
import TestSupport
import Testing

/// The provider with Debian's scepserver.
@Suite(.timeLimit(.minutes(20))) struct SCEPProviderTests {
    private func provider(
        _ server: SCEPServer, storage: any IdentityStorage = InMemoryStorage(), _ settings: [String: String] = [:]
    ) throws -> EnrollingProvider {
        let environment = ProviderEnvironment.testing(
            storage: storage, variables: ["CHALLENGE": SCEPServer.challenge, "WRONG": "wrong"])
        var parameters = [
            "protocol": "scep", "url": "http://127.0.0.1:\(server.port)/scep", "challenge-source": "env:CHALLENGE",
            "ca-fingerprint": server.authority.sha256Fingerprint.hexEncoded, "subject": "CN=client,O=Example",
            "timeout": "600",
        ]
        parameters.merge(settings) { $1 }
        let provider = try RemoteMDMProvider.make(
            environment: environment, parameters: ProviderParameters(parameters.mapValues { .init($0) }))
        return provider
    }

    @Test func anIdentityIsEnrolledAndRenewed() async throws {
        let server = try SCEPServer()
        let provider = try provider(server)
        let first = try await provider.getCertificate(NoUserInteraction())
        try await first.verifyPossession()
        #expect(first.certificate.publicKey.algorithm == .rsa)
        let second = try await provider.getCertificate(NoUserInteraction())
        #expect(second.certificate.publicKey != first.certificate.publicKey)
        #expect(try provider.getStoredCertificate()?.certificate == second.certificate)
    }

    @Test func aWrongChallengeOrAuthorityIsRefused() async throws {
        let server = try SCEPServer()
        let wrong = try provider(server, ["challenge-source": "env:WRONG"])
        #expect(await code { _ = try await wrong.getCertificate(NoUserInteraction()) } == .rejected)
        let stranger = try provider(server, ["ca-fingerprint": String(repeating: "ab", count: 32)])
        #expect(await code { _ = try await stranger.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        #expect(await code { _ = try provider(server, ["key-type": "p256"]) } == .unsupportedAlgorithm)
    }
}

import CertificateProviding
import Enrolment
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// How a server is known of which nothing was known before (RFC 7030, section 4.1.1).
@Suite(.timeLimit(.minutes(20))) struct FirstTrustTests {
    /// Sends a token without being asked for it.
    private static let bearer = ["username": "", "password-source": "", "bearer-source": "env:TOKEN"]

    private func settings(_ more: [String: String]) -> [String: String] {
        Self.bearer.merging(["trust-anchors": ""]) { $1 }.merging(more) { $1 }
    }

    private func fingerprint(_ file: String, of server: ESTResponder) throws -> String {
        try #require(try CertificateFile.read(server.directory[file]).first).sha256Fingerprint.hexEncoded
    }

    @Test func aFingerprintFindsTheAuthority() async throws {
        let server = try ESTResponder(.bearer)
        let storage = InMemoryStorage()
        let settings = settings(["ca-fingerprint": try fingerprint("ca.pem", of: server)])
        let provider = try server.provider(storage: storage, settings)
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
        let requests = server.requests
        let first = try #require(requests.first)
        #expect(first.operation == .cacerts)
        #expect(first.authorization == nil && first.clientCertificate == nil)
        // All else goes over another connection.
        let others = requests.dropFirst()
        #expect(others.allSatisfy { $0.connection != first.connection })
        #expect(others.first?.operation == .cacerts)
        #expect(others.contains { $0.authorization == "Bearer" })

        // The trust that was found is known.
        let renewed = try await server.provider(storage: storage, settings).getCertificate(NoUserInteraction())
        try server.verify(renewed)
        let second = server.requests.dropFirst(requests.count)
        #expect(second.filter { $0.operation == .cacerts }.count == 1)
        #expect(second.allSatisfy { $0.clientCertificate != nil })
    }

    @Test func anotherFingerprintIsRefusedBeforeAnythingSecretIsSent() async throws {
        let server = try ESTResponder(.bearer)
        for (print, expected) in [
            (try fingerprint("stranger-ca.pem", of: server), ProviderError.Code.serverNotTrusted),
            (try fingerprint("intermediate.pem", of: server), .configurationInvalid),
        ] {
            let provider = try server.provider(settings(["ca-fingerprint": print]))
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == expected)
        }
        let requests = server.requests
        #expect(requests.count == 2)
        #expect(requests.allSatisfy { $0.authorization == nil })
        #expect(requests.allSatisfy { $0.operation == .cacerts })
    }

    @Test("The user confirms the CA fingerprint once, not again for a renewal")
    func aPersonConfirmsOnce() async throws {
        let server = try ESTResponder(.bearer)
        let storage = InMemoryStorage()
        let person = Person(confirming: true)
        _ = try await server.provider(storage: storage, settings([:])).getCertificate(person)
        let arguments = ["openssl", "x509", "-in", "ca.pem", "-noout", "-fingerprint", "-sha256"]
        let text = String(decoding: try Subprocess.run(arguments, in: server.directory.path), as: UTF8.self)
        let digits = try #require(text.split(separator: "=").last).split(whereSeparator: \.isNewline).joined()
        #expect(person.questions.count == 1)
        #expect(person.questions.first?.contains(digits) == true, "\(person.questions) \(digits)")
        #expect(server.requests.first?.authorization == nil)

        // A service that renews asks no person.
        let provider = try server.provider(storage: storage, settings([:]))
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(server.issued == 2)
        // The configured anchors come first.
        let stranger = settings(["trust-anchors": server.directory["stranger-ca.pem"]])
        let other = try server.provider(storage: storage, stranger)
        #expect(await code { _ = try await other.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        // The deletion of the identity takes the trust back.
        try provider.deleteStoredCertificate()
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .configurationInvalid)
    }

    @Test("Without the user's confirmation of the CA, the enrolment stops", arguments: [Bool?.some(false), nil])
    func withoutAYesNothingGoesOn(answer: Bool?) async throws {
        let expected: ProviderError.Code = answer == nil ? .configurationInvalid : .userCancelled
        let server = try ESTResponder(.bearer)
        let storage = InMemoryStorage()
        let provider = try server.provider(storage: storage, settings([:]))
        let person = Person(confirming: answer)
        #expect(await code { _ = try await provider.getCertificate(person) } == expected)
        #expect(person.questions.count == 1)
        #expect(server.requests.map(\.operation) == [.cacerts])
        #expect(server.requests.first?.authorization == nil)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        #expect(server.requests.count == 1)
    }

    /// One who answers for the server names its authority, and cannot be it.
    @Test func aConfirmedAuthorityMustHaveCertifiedTheServer() async throws {
        let server = try ESTResponder(.bearer, .init(serverCertificate: .selfSigned))
        let storage = InMemoryStorage()
        for settings in [settings(["ca-fingerprint": try fingerprint("ca.pem", of: server)]), settings([:])] {
            let provider = try server.provider(storage: storage, settings)
            let person = Person(confirming: true)
            #expect(await code { _ = try await provider.getCertificate(person) } == .serverNotTrusted)
            // And is not remembered.
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } != nil)
        }
        #expect(server.requests.allSatisfy { $0.authorization == nil })
    }

    @Test func parametersThatMeanNothingAreRefused() async throws {
        let server = try ESTResponder()
        let print = try fingerprint("ca.pem", of: server)
        let pinned = ["pin": server.directory["server.pem"], "pin-mode": "pin-only", "ca-fingerprint": print]
        for settings in [
            pinned, ["ca-identifier": "one"], ["scep-allow-3des": "true"], ["challenge-source": "prompt"],
            ["server-keygen": "perhaps"],
        ] {
            #expect(await code { _ = try server.provider(settings) } == .configurationInvalid, "\(settings)")
        }
    }

    @Test("The user is not asked to confirm five CA fingerprints at once, or none")
    func moreThanAPersonCanCompareIsNotShown() async throws {
        let server = try ESTResponder()
        let provider = try server.provider(settings([:]))
        let person = Person(confirming: true)
        let authorities = try (1...5).map { try CertifiedKey("Root \($0)", key: TestKeys.makeP256()).certificate }
        let environment = ProviderEnvironment.testing()
        let trust = try AuthorityTrust(provider.settings, environment, person, ESTProtocol.authorityRules)
        try await trust.confirm(Array(authorities.prefix(2)))
        let question = try #require(person.questions.first)
        #expect(authorities.prefix(2).allSatisfy { question.contains(CAFingerprint.text(of: $0)) })
        for refused in [[], authorities] {
            #expect(await code { try await trust.confirm(refused) } == .configurationInvalid)
        }
        #expect(person.questions.count == 1)
    }

    @Test func aPinIsLookedAtOnTheFirstConnectionToo() async throws {
        let server = try ESTResponder(.bearer)
        let print = try fingerprint("ca.pem", of: server)
        let another = "sha256/" + String(repeating: "A", count: 43) + "="
        let wrong = try server.provider(settings(["ca-fingerprint": print, "pin": another]))
        #expect(await code { _ = try await wrong.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        #expect(server.requests.isEmpty)
        let right = settings(["ca-fingerprint": print, "pin": server.directory["server.pem"]])
        _ = try await server.provider(right).getCertificate(NoUserInteraction())
        #expect(server.issued == 1)
    }

    @Test func anchorAndFingerprintMustBothFit() async throws {
        let server = try ESTResponder(.bearer)
        let anchored = Self.bearer.merging(["ca-fingerprint": try fingerprint("stranger-ca.pem", of: server)]) { $1 }
        let wrong = try server.provider(anchored)
        #expect(await code { _ = try await wrong.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        #expect(server.issued == 0)
        // The token is for the right server.
        #expect(server.requests.map(\.authorization) == [nil])
        let both = Self.bearer.merging(["ca-fingerprint": try fingerprint("ca.pem", of: server)]) { $1 }
        _ = try await server.provider(both).getCertificate(NoUserInteraction())
    }
}

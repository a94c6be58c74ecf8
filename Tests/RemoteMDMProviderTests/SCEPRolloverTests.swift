import CertificateProviding
import Enrolment
import Foundation
import OpenSSLSupport
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// The provider with SCEP servers that are not like Debian's.
@Suite(.timeLimit(.minutes(20))) struct SCEPRolloverTests {
    private func provider(
        _ server: SCEPHTTPServer, storage: any IdentityStorage = InMemoryStorage(), _ settings: [String: String] = [:]
    ) throws -> EnrollingProvider {
        let environment = ProviderEnvironment.testing(
            storage: storage, variables: ["CHALLENGE": SCEPServer.challenge],
            transport: Transport(retryPolicy: TurnedClock().retryPolicy))
        var parameters = [
            "protocol": "scep", "url": "http://127.0.0.1:\(server.port)/scep", "challenge-source": "env:CHALLENGE",
            "ca-fingerprint": try CertifiedKey.authority.get().certificate.sha256Fingerprint.hexEncoded,
            "subject": "CN=client,O=Example", "timeout": "600",
        ]
        parameters.merge(settings) { $1 }
        let provider = try RemoteMDMProvider.make(
            environment: environment,
            parameters: ProviderParameters(parameters.filter { !$0.value.isEmpty }.mapValues { .init($0) }))
        return provider
    }

    @Test("CA certificates and capabilities are requested once per run")
    func whatHoldsForARunIsAskedForOnce() async throws {
        let server = try await SCEPHTTPServer(SCEPResponder(.init(pending: 2)))
        _ = try await provider(server, ["timeout": "600"]).getCertificate(NoUserInteraction())
        let once = ["GetCACert", "GetCACaps", "GetNextCACert"]
        #expect(server.operations == once + ["PKIOperation", "PKIOperation", "PKIOperation"])
    }

    @Test("A CA announced by GetNextCACert is trusted after the rollover", arguments: [true, false])
    func theNextAuthorityIsKnownBeforeItIsThere(withAnchors: Bool) async throws {
        let server = try await SCEPHTTPServer(SCEPResponder())
        let folder = try TemporaryDirectory()
        try folder.write(try CertifiedKey.authority.get().certificate.pemRepresentation.utf8, to: "ca.pem")
        let settings = withAnchors ? ["ca-fingerprint": "", "trust-anchors": folder["ca.pem"]] : [:]
        let storage = InMemoryStorage()
        let first = try await provider(server, storage: storage, settings).getCertificate(NoUserInteraction())
        server.replaceResponder(
            by: try SCEPResponder(
                .init(capabilities: "SCEPStandard\nRenewal"), authority: CertifiedKey.impostor.get()))
        let second = try await provider(server, storage: storage, settings).getCertificate(NoUserInteraction())
        #expect(second.certificate != first.certificate)
        // A client without an earlier answer does not believe it.
        let stranger = try provider(server, settings)
        #expect(await code { _ = try await stranger.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
        // The configuration's own authority stays one; another configuration knows nothing of this.
        server.replaceResponder(by: try SCEPResponder())
        _ = try await provider(server, storage: storage, settings).getCertificate(NoUserInteraction())
        server.replaceResponder(by: try SCEPResponder(authority: CertifiedKey.impostor.get()))
        let other = ["ca-fingerprint": String(repeating: "ab", count: 32)]
        let changed = try provider(server, storage: storage, settings.merging(other) { $1 })
        #expect(await code { _ = try await changed.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
    }

    /// A missing next authority, or one that is not believed, does not keep a client from enrolling.
    @Test func aNextAuthorityThatIsNotSignedIsNotBelieved() async throws {
        let storage = InMemoryStorage()
        let responder = try SCEPResponder(.init(nextSigner: CertifiedKey.impostor.get()))
        let server = try await SCEPHTTPServer(responder)
        _ = try await provider(server, storage: storage).getCertificate(NoUserInteraction())
        server.replaceResponder(by: try SCEPResponder(authority: CertifiedKey.impostor.get()))
        let later = try provider(server, storage: storage)
        #expect(await code { _ = try await later.getCertificate(NoUserInteraction()) } == .serverNotTrusted)
    }

    @Test("The configured CA is not recorded as a learnt one", arguments: [true, false])
    func whatIsConfiguredIsNotRemembered(withAnchors: Bool) async throws {
        let server = try await SCEPHTTPServer(SCEPResponder(.init(capabilities: "SCEPStandard\nRenewal")))
        let folder = try TemporaryDirectory()
        try folder.write(try CertifiedKey.authority.get().certificate.pemRepresentation.utf8, to: "ca.pem")
        let storage = InMemoryStorage()
        let provider = try provider(
            server, storage: storage, withAnchors ? ["ca-fingerprint": "", "trust-anchors": folder["ca.pem"]] : [:])
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(try storage.record(named: provider.settings.authoritiesRecordName) == nil)
    }

    /// A server that cannot say it now has said it before.
    @Test("An announced CA stays trusted after a later GetNextCACert fails")
    func whatWasAnnouncedStaysKnown() async throws {
        let storage = InMemoryStorage()
        let server = try await SCEPHTTPServer(SCEPResponder())
        _ = try await provider(server, storage: storage).getCertificate(NoUserInteraction())
        server.replaceResponder(by: try SCEPResponder(.init(statuses: ["GetNextCACert": 500])))
        _ = try await provider(server, storage: storage).getCertificate(NoUserInteraction())
        server.replaceResponder(by: try SCEPResponder(authority: CertifiedKey.impostor.get()))
        _ = try await provider(server, storage: storage).getCertificate(NoUserInteraction())
    }

    @Test func aPersonConfirmsTheAuthority() async throws {
        let storage = InMemoryStorage()
        let server = try await SCEPHTTPServer(SCEPResponder())
        let settings = ["ca-fingerprint": ""]
        let nobody = try provider(server, settings)
        #expect(await code { _ = try await nobody.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        let no = Person(confirming: false)
        #expect(await code { _ = try await nobody.getCertificate(no) } == .userCancelled)
        #expect(Set(server.operations) == ["GetCACert"])
        let yes = Person(confirming: true)
        _ = try await provider(server, storage: storage, settings).getCertificate(yes)
        let text = CAFingerprint.text(of: try CertifiedKey.authority.get().certificate)
        #expect(yes.questions.count == 1 && yes.questions.first?.contains(text) == true)
        _ = try await provider(server, storage: storage, settings).getCertificate(NoUserInteraction())
    }

    @Test func theIdentifierOfTheCAIsSent() async throws {
        let server = try await SCEPHTTPServer(SCEPResponder())
        _ = try await provider(server, ["ca-identifier": "Corp CA&1"]).getCertificate(NoUserInteraction())
        let questions = server.requests.filter { $0.operation != "PKIOperation" }
        #expect(questions.count == 3 && questions.allSatisfy { $0.target.hasSuffix("&message=Corp%20CA%261") })
    }

    @Test func tripleDESIsUsedOnlyWhereConfigured() async throws {
        let responder = try SCEPResponder(.init(capabilities: "SHA-256\nDES3\nPOSTPKIOperation"))
        let server = try await SCEPHTTPServer(responder)
        for settings in [[:], ["scep-allow-3des": "false"]] {
            let strict = try provider(server, settings)
            #expect(await code { _ = try await strict.getCertificate(NoUserInteraction()) } == .unsupportedAlgorithm)
        }
        #expect(responder.received.isEmpty)
        _ = try await provider(server, ["scep-allow-3des": "true"]).getCertificate(NoUserInteraction())
        #expect(responder.received.map(\.cipher) == [.tripleDESCBC])
        #expect(await code { _ = try provider(server, ["scep-allow-3des": "yes"]) } == .configurationInvalid)
    }

    @Test func aServerThatIsBusyIsAskedAgain() async throws {
        let server = try await SCEPHTTPServer(SCEPResponder(.init(statuses: ["GetCACert": 503])))
        let busy = try provider(server)
        #expect(await code { _ = try await busy.getCertificate(NoUserInteraction()) } == .unavailable)
        #expect(server.operations == ["GetCACert", "GetCACert", "GetCACert"])
        server.replaceResponder(by: try SCEPResponder(.init(statuses: ["PKIOperation": 503])))
        #expect(await code { _ = try await busy.getCertificate(NoUserInteraction()) } == .unavailable)
        #expect(server.operations.filter { $0 == "PKIOperation" }.count == 1)
    }
}

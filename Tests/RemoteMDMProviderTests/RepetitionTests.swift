import CertificateProviding
import Enrolment
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// The requests that are repeated automatically, and those that never are.
@Suite(.timeLimit(.minutes(20))) struct RepetitionTests {
    @Test("Requests for CA certificates and CSR attributes are repeated after a failure")
    func whatDoesNoHarmIsAskedAgain() async throws {
        let server = try ESTResponder(.basic)
        for (fault, count) in [
            ("cacerts-status-503*2", 3), ("cacerts-status-500*1", 2), ("cacerts-close-after-request*2", 3),
            ("csrattrs-429*1", 2), ("csrattrs-half-close*1", 2),
        ] {
            let clock = TurnedClock()
            let before = server.requests.count
            try server.verify(
                try await server.provider(label: "fault-\(fault)", clock: clock).getCertificate(NoUserInteraction()))
            let operation = ESTOperation(rawValue: String(fault.prefix { $0 != "-" }))
            let asked = server.requests.dropFirst(before).filter { $0.operation == operation }
            #expect(asked.count == count, "\(fault)")
            #expect(clock.waits.count == count - 1, "\(fault)")
        }
    }

    @Test("A request that keeps failing with 502 is sent three times, one with 404 once")
    func whatFailsForGoodIsAskedThreeTimes() async throws {
        let server = try ESTResponder(.basic)
        let clock = TurnedClock()
        let provider = try server.provider(label: "fault-cacerts-status-502", clock: clock)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .unavailable)
        #expect(clock.waits == [.milliseconds(700), .milliseconds(1200)])
        #expect(server.requests.count == 3)
        // A request whose answer will not change is not repeated.
        let wrong = try server.provider(label: "fault-cacerts-status-404", clock: clock)
        #expect(await code { _ = try await wrong.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        #expect(server.requests.count == 4)
    }

    @Test(arguments: ["close-after-request*1", "status-503*1", "cut-40*1", "status-503-retry-1*1"])
    func aRequestForACertificateIsNotRepeated(fault: String) async throws {
        let server = try ESTResponder(.basic)
        let clock = TurnedClock()
        let provider = try server.provider(label: "fault-\(fault)", clock: clock)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } != nil)
        // With the password, which the first one is refused without.
        let sent = server.requests.filter { $0.user != nil }
        #expect(sent.count == 1)
        #expect(clock.waits.isEmpty)
    }

    /// And does not say so beforehand, as libest.
    @Test(
        "Authentication succeeds if the server closes the connection after its 401",
        arguments: [ESTAuthentication.basic, .digest], ["1.2", "1.3"])
    func aServerMayCloseAfterItsRefusal(authentication: ESTAuthentication, version: String) async throws {
        let server = try ESTResponder(authentication, .init(tls: version))
        for _ in 0..<5 {
            let provider = try server.provider(label: "fault-close-after-answer")
            try server.verify(try await provider.getCertificate(NoUserInteraction()))
        }
    }

    /// Another connection is another handshake: only for those that do not say that they keep the first one.
    @Test func aServerThatKeepsTheConnectionIsAnsweredOverIt() async throws {
        let server = try ESTResponder(.basic)
        try server.verify(try await server.provider().getCertificate(NoUserInteraction()))
        let enrolments = server.requests.filter { $0.operation == .simpleenroll }
        #expect(enrolments.map(\.status) == [401, 200])
        #expect(Set(enrolments.map(\.connection)).count == 1)
    }

    @Test("A Retry-After delay is observed, and one beyond the deadline ends the enrolment")
    func aServerSaysWhenToComeBack() async throws {
        let server = try ESTResponder(.basic)
        let clock = TurnedClock()
        let soon = try server.provider(label: "fault-cacerts-status-503-retry-5*1", clock: clock)
        _ = try await soon.getCertificate(NoUserInteraction())
        #expect(clock.waits == [.milliseconds(5700)])
        // Later than the deadline: it is not asked before that.
        let late = try server.provider(label: "fault-cacerts-status-429-retry-120", ["timeout": "60"], clock: clock)
        let error = await #expect(throws: ProviderError.self) {
            try await late.getCertificate(NoUserInteraction())
        }
        #expect(error?.code == .unavailable && error?.retryAfter == .seconds(120))
        #expect(clock.waits.count == 1)
    }

    @Test func aServerThatIsNotThereIsLookedForAgain() async throws {
        let clock = TurnedClock(draw: 1)
        let server = try ESTResponder()
        let provider = try server.provider(["url": "https://localhost:1"], clock: clock)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .unavailable)
        #expect(clock.waits == [.milliseconds(1200), .milliseconds(2200)])
    }

    @Test func waitsHaveAFloorAndAreDrawn() {
        #expect(TurnedClock(draw: 0).retryPolicy.delay(after: 3) == .milliseconds(200))
        #expect(TurnedClock(draw: 1).retryPolicy.delay(after: 3) == .milliseconds(4200))
        #expect(TurnedClock(draw: 0).retryPolicy.delay(afterBeingTold: .zero) == .milliseconds(200))
        let drawn = (0..<64).map { _ in RetryPolicy().delay(after: 1) }
        #expect(Set(drawn).count > 1 && drawn.allSatisfy { (.milliseconds(200)...(.milliseconds(1200))).contains($0) })
    }

    @Test("CA certificates and CSR attributes are requested once per run")
    func whatHoldsForARunIsAskedForOnce() async throws {
        let server = try ESTResponder(.basic, .init(wishes: ["hash:sha384"], pending: 2))
        _ = try await server.provider().getCertificate(NoUserInteraction())
        let operations = server.requests.map(\.operation)
        #expect(operations.filter { $0 == .csrattrs }.count == 1)
        #expect(operations.filter { $0 == .cacerts }.count == 1)
        #expect(operations.filter { $0 == .simpleenroll }.count >= 3)
    }

    @Test("SCEP fetches CA certificates and capabilities once; PKIOperation is not repeatable")
    func soItIsWithSCEP() async throws {
        let responder = try SCEPResponder(.init(pending: 1))
        let recorder = RecordingTransport(responder.transport)
        let client = SCEPClient.testing(
            try SCEPConfiguration(trusting: responder.authority.certificate), transport: recorder.transport)
        _ = try await client.authorities()
        for isPending in [false, true] {
            _ = try await client.enrol(.testing(key: TestKeys.rsa.get(), isPending: isPending))
        }
        #expect(
            recorder.operations == ["GET GetCACert", "GET GetCACaps", "POST PKIOperation", "POST PKIOperation"])
        #expect(recorder.requests.map(\.isRepeatable) == [true, true, false, false])
    }
}

import CertificateProviding
import Enrolment
import IdentityStore
import ProviderTransport
import Synchronization
import TestSupport
import Testing

/// The engine, with a provider for a server that does not exist.
@Suite struct InventedProviderTests {
    private let person = NoUserInteraction()

    @Test("An identity is enrolled, renewed and deleted")
    func anIdentityIsEnrolledAndRenewed() async throws {
        let host = try Host()
        let provider = try host.provider()
        let first = try await provider.getCertificate(person)
        #expect(
            first.certificate.subject == "CN=host17,O=certprov tests"
                && first.provenance.source == "memory:invented.example")
        #expect(first.trust != nil)
        let second = try await provider.getCertificate(person)
        #expect(second.key.publicKey != first.key.publicKey)
        #expect(try host.provider().getStoredCertificate()?.certificate == second.certificate)
        #expect(host.server.state.withLock { $0.issued.count == 2 && $0.accepted == 2 })
        // A key that can be read out is destroyed at once.
        #expect(try await host.keys() == [second.key.uri])
        #expect(await provider.listIdentities().remarks.isEmpty)
        try provider.deleteStoredCertificate()
        #expect(try await host.keys().isEmpty)
        #expect(try provider.getStoredCertificate() == nil && host.memory.recordNames().isEmpty)
    }

    @Test("A pending request is waited for, and asked for again with the same key and ticket")
    func aPendingRequestIsAskedForAgain() async throws {
        let host = try Host()
        host.server.state.withLock { $0.looks = 3 }
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.state.withLock { $0.requests.count == 1 && $0.heard.count { $0 == "look" } == 4 })
        host.server.state.withLock { $0.looks = 1000 }
        #expect(await code { _ = try await host.provider().getCertificate(person) } == .pending)
        let remark = try #require(await host.provider().listIdentities().remarks.first)
        #expect(remark.contains("has not decided yet"))
        host.server.state.withLock { $0.looks = 0 }
        host.server.decide()
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.state.withLock { $0.requests.count == 2 && $0.issued.count == 2 })
    }

    @Test("A ticket that the server has lost is taken anew, with the same request")
    func aLostTicketIsTakenAnew() async throws {
        let host = try Host()
        host.server.state.withLock { $0.looks = 1000 }
        #expect(await code { _ = try await host.provider().getCertificate(person) } == .pending)
        host.server.forgetTickets()
        host.server.state.withLock { $0.looks = 0 }
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.state.withLock { $0.requests.count == 2 && Set($0.requests).count == 1 })
    }

    @Test("A refusal destroys the key, and the old identity stays", arguments: [false, true])
    func aRefusalDestroysTheKey(isRenewal: Bool) async throws {
        let host = try Host()
        let old = isRenewal ? try await host.provider().getCertificate(person) : nil
        host.server.state.withLock { $0.refuses = true }
        #expect(await code { _ = try await host.provider().getCertificate(person) } == .rejected)
        #expect(try await host.keys() == (old?.key.uri).map { [$0] } ?? [])
        #expect(try host.provider().getStoredCertificate()?.certificate == old?.certificate)
        host.server.state.withLock { $0.refuses = false }
        _ = try await host.provider().getCertificate(person)
        #expect(host.server.state.withLock { Set($0.requests).count } == (isRenewal ? 3 : 2))
    }

    @Test("A certificate that the server takes back replaces nothing")
    func aCertificateThatIsTakenBackReplacesNothing() async throws {
        let host = try Host()
        let old = try await host.provider().getCertificate(person)
        host.server.state.withLock { $0.refusesAcceptance = true }
        #expect(await code { _ = try await host.provider().getCertificate(person) } == .rejected)
        #expect(try host.provider().getStoredCertificate()?.certificate == old.certificate)
        #expect(try await host.keys() == [old.key.uri])
    }

    @Test(
        "A renewal that fails goes on without the identity only if the protocol permits it", arguments: [false, true])
    func aRenewalMayBecomeAnEnrolment(permits: Bool) async throws {
        let host = try Host()
        _ = try await host.provider().getCertificate(person)
        host.server.state.withLock {
            $0.hasForgottenRenewals = permits
            $0.refuses = true
        }
        #expect(await code { _ = try await host.provider().getCertificate(person) } == .rejected)
        #expect(host.server.state.withLock { $0.requests.count } == (permits ? 3 : 2))
    }

    @Test("The server's wish decides on the key, and a protocol may make it first")
    func theKeyIsMadeWhenTheProtocolWants() async throws {
        let host = try Host()
        host.server.state.withLock { $0.keyType = .p384 }
        #expect(try await host.provider().getCertificate(person).certificate.publicKey.curve == "P-384")
        host.server.state.withLock { $0.failure = ProviderError(.unavailable, "down") }
        let fresh = try Host(server: host.server)
        #expect(await code { _ = try await fresh.provider().getCertificate(person) } == .unavailable)
        #expect(try await fresh.keys().isEmpty)
        #expect(await code { _ = try await fresh.provider(needsKeyFirst: true).getCertificate(person) } == .unavailable)
        // The next run has it already.
        #expect(try await fresh.keys().count == 1)
        host.server.state.withLock { $0.failure = nil }
        _ = try await fresh.provider(needsKeyFirst: true).getCertificate(person)
        #expect(try await fresh.keys().count == 1)
    }

    @Test("A wait for a decision is counted down")
    func aWaitIsCountedDown() async throws {
        let (host, person) = (try Host(), Person(confirming: nil))
        host.server.state.withLock { ($0.looks, $0.retryAfter) = (1, .seconds(3)) }
        _ = try await host.provider().getCertificate(person)
        #expect(person.waits == [3, 2, 1, 0].map { .seconds($0) })
        #expect(host.waits.all.withLock(\.self) == [1, 1, 1].map { .seconds($0) })
    }

    @Test(
        "A decision is asked for less and less often, and \"at once\" does not mean each second", arguments: [nil, 0])
    func theDelaysGrow(told: Int?) async throws {
        let host = try Host(draw: 1)
        host.server.state.withLock { ($0.looks, $0.retryAfter) = (1000, told.map { .seconds($0) }) }
        let error = await failure { _ = try await host.provider().getCertificate(person) }
        // After 5.2, 6.2, 8.2, 12.2 and 20.2 seconds; the next one would be too late.
        #expect(host.server.state.withLock { $0.heard.count { $0 == "look" } } == 6)
        #expect(host.waits.sum == .seconds(52))
        // A time that the server has not named is not passed on.
        #expect(error?.code == .pending && error?.retryAfter == told.map { .seconds($0) })
    }

    @Test(
        "The plan decides on a certificate with another subject",
        arguments: [SubjectRule.required, .preferred, .server])
    func theSubjectRule(rule: SubjectRule) async throws {
        let host = try Host()
        host.server.state.withLock { $0.subject = "Another Name" }
        let provider = try host.provider { $0.subjectRule = rule }
        for _ in 0..<2 {
            let error = await failure { _ = try await provider.getCertificate(person) }
            #expect((error?.message.contains("set 'names' to server") == true) == (rule == .required))
            #expect(try (provider.getStoredCertificate() == nil) == (rule == .required))
        }
        let isWarned = host.log.warnings.contains { $0.contains("another subject than the requested one") }
        let remarks = await provider.listIdentities().remarks
        let isRemarked = remarks.contains {
            $0.hasSuffix(
                "has issued for the subject 'CN=Another Name,O=certprov tests' instead of 'CN=host17,O=certprov tests'."
            )
        }
        #expect(isWarned == (rule == .preferred) && isRemarked == (rule == .preferred))
    }

    /// Each write to the store and each answer of the server may be the last event of a process.
    @Test("A kill at any step loses no identity and no key, and costs no second certificate", arguments: [false, true])
    func aKillAtAnyStepIsResumed(isRenewal: Bool) async throws {
        for steps in 0..<200 {
            let power = Power()
            let server = try InventedServer { () throws(ProviderError) in try power.spend() }
            server.state.withLock { $0.looks = 1 }
            let host = try Host(server: server, power: power)
            let old = isRenewal ? try await host.provider().getCertificate(person) : nil
            let before = server.state.withLock(\.issued.count)
            power.cut(after: steps)
            _ = try? await host.provider().getCertificate(person)
            let isKilled = power.isOff
            let next = try Host(server: server, power: power, memory: host.memory.afterCrash())
            power.restore()
            let found = try next.provider().getStoredCertificate()
            if isRenewal { #expect(found != nil) }
            let isThere = found != nil && found?.certificate != old?.certificate
            let identity = isThere ? found : try await next.provider().getCertificate(person)
            try await identity?.verifyPossession()
            if isThere, let identity { try await next.provider().discardReplaced(by: identity, person) }
            #expect(try await next.keys() == [identity?.key.uri], "after \(steps) steps")
            #expect(server.state.withLock(\.issued.count) == before + 1, "after \(steps) steps")
            if !isKilled {
                #expect(steps > 20)
                return
            }
        }
        Issue.record("The steps do not end.")
    }
}

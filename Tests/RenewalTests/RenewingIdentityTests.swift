import CertificateProviding
import FoundationEssentials
import Logging
import MetricsTestKit
import Synchronization
import TestSupport
import Testing

@testable import Renewal

/// The service's handling of an identity, on a clock that a test turns.
@Suite struct RenewingIdentityTests {
    private let clock: TurnedClock
    private let provider: IssuingProvider
    private let first: Identity
    private let metrics = TestMetrics()
    private let installed = Installed()

    /// A certificate for a day, and three days of time.
    init() throws {
        clock = TurnedClock(until: .days(3))
        provider = try IssuingProvider(clock, lifetime: .days(1))
        first = try provider.issue()
        provider.store(first)
    }

    /// The installed identities.
    private final class Installed: Sendable {
        let certificates = Mutex<[X509Certificate]>([])
        let failures = Mutex(0)

        func install(_ identity: Identity) throws(ProviderError) {
            let fails = failures.withLock { failures in
                defer { failures = max(0, failures - 1) }
                return failures > 0
            }
            if fails { throw ProviderError(.unsupportedAlgorithm, "Not for TLS.") }
            certificates.withLock { $0.append(identity.certificate) }
        }
    }

    private func service(_ identity: Identity? = nil) -> RenewingIdentity {
        var environment = clock.environment
        environment.metrics = metrics
        let installed = installed
        return RenewingIdentity(
            identity ?? first, of: provider, executor: BlockingExecutor { $0() }, environment: environment
        ) { identity throws(ProviderError) in try installed.install(identity) }
    }

    @Test("The service renews whenever due and publishes the new identity")
    func renewsAgainAndAgainAndPublishesEach() async throws {
        let service = service()
        let seen = Task {
            var certificates: [X509Certificate] = []
            for await identity in service.updates { certificates.append(identity.certificate) }
            return certificates
        }
        await service.run(on: clock)
        #expect((4...5).contains(provider.renewals.count), "\(provider.renewals)")
        let intervals = ([.zero] + provider.renewals).intervals
        #expect(intervals.allSatisfy { (.hours(14.39)...(.hours(16.1))).contains($0) }, "\(intervals)")
        #expect(clock.sleeps.allSatisfy { $0 <= .seconds(60) })
        let taken = installed.certificates.withLock { $0 }
        #expect(taken.count == provider.renewals.count && taken.last == service.current.certificate)
        let certificates = await seen.value
        #expect(certificates.first == first.certificate || taken.contains(certificates[0]))
        #expect(certificates.last == service.current.certificate)
    }

    @Test(
        "A superfluous certificate of the chain that ends, or has ended, causes no renewal without end",
        arguments: [-24.0, 10])
    func aSuperfluousCertificateIsNoReasonToRenew(endsAfter hours: Double) async throws {
        let (authority, end) = (provider.authority, clock.wall + hours * 3600)
        provider.answer { issued, _ throws(ProviderError) in
            do { return try authority.crossCertified(issued, until: end) } catch {
                throw ProviderError(.internal, "\(error)")
            }
        }
        let service = RenewingIdentity(try authority.crossCertified(first, until: end), of: provider, clock.environment)
        await service.run(on: clock)
        // As often as without it, and before its end at two thirds of the rest.
        #expect((4...(hours < 0 ? 5 : 16)).contains(provider.renewals.count), "\(provider.renewals)")
        #expect(provider.attempts == provider.renewals)
    }

    /// The provider has a new identity long before the current one is due; then it announces one, and has none.
    @Test func anAnnouncedUpdateIsTakenAtOnce() async throws {
        let (clock, provider) = (clock, provider)
        provider.answer { issued, _ throws(ProviderError) in
            // Those that are due come later.
            if clock.uptime > .hours(2) { return issued }
            throw ProviderError(.unavailable, "Down.")
        }
        let successor = try provider.issue()
        provider.store(successor)
        for _ in 0..<1000 { provider.announce() }
        let service = service()
        let seen = Task {
            var certificates: [X509Certificate] = []
            for await identity in service.updates { certificates.append(identity.certificate) }
            return certificates
        }
        await service.run(on: clock)
        let taken = installed.certificates.withLock { $0 }
        #expect(taken.first == successor.certificate)
        _ = await seen.value
        // One that is announced and is not there: asked for once a minute at most.
        let early = provider.attempts.filter { $0 < .hours(2) }
        #expect(early.count <= 120 && early.intervals.allSatisfy { $0 >= .seconds(60) }, "\(early)")
    }

    @Test(
        "An announced update that is not there yet is asked for again, after the pause of any failure",
        arguments: [
            (ProviderError(.unavailable, "Down."), Duration.seconds(30), Duration.minutes(5)),
            (ProviderError(.pending, "Later."), .seconds(30), .minutes(5)),
            (ProviderError(.pending, "Later.", retryAfter: .hours(2)), .hours(2), .hours(2.25)),
        ], [false, true])
    func anAnnouncedUpdateIsNotForgotten(
        failure: (error: ProviderError, least: Duration, most: Duration), isAnnouncedAgain: Bool
    ) async throws {
        let provider = provider
        provider.answer { issued, _ throws(ProviderError) in
            guard provider.attempts.count <= 2 else { return issued }
            if isAnnouncedAgain { provider.announce() }
            throw failure.error
        }
        provider.announce()
        await service().run(on: clock)
        let waits = provider.attempts.prefix(3).map(\.self).intervals
        #expect(waits.count == 2 && waits.allSatisfy { (failure.least...failure.most).contains($0) }, "\(waits)")
    }

    @Test("An announcement without a new certificate is over, and no failure")
    func anAnnouncementWithoutNewsIsOver() async throws {
        let (first, provider) = (first, provider)
        provider.answer { issued, _ in provider.attempts.count == 1 ? first : issued }
        provider.announce()
        await service().run(on: clock)
        let attempts = provider.attempts.prefix(2).map(\.self)
        #expect(attempts.first.map { $0 < .minutes(2) } == true)
        #expect(attempts.count == 2 && attempts.intervals[0] > .hours(4), "\(attempts)")
        for result in ["pending", "failed"] {
            #expect(throws: (any Error).self) {
                try metrics.expectCounter("certprov_renewals_total", [("provider", "issuing"), ("result", result)])
            }
        }
    }

    @Test("An update that is announced during a renewal is asked for afterwards, and nothing spins until then")
    func anUpdateDuringARenewalWaits() async throws {
        let provider = provider
        let pauses = Mutex(0)
        let begun = AsyncStream<Void>.makeStream()
        provider.answer { issued, _ in
            if provider.attempts.count == 1 {
                provider.announce()
                for _ in 0..<20 where pauses.withLock({ $0 < 100 }) { try? await Task.sleep(for: .milliseconds(10)) }
            }
            begun.continuation.yield()
            return issued
        }
        var environment = clock.environment
        environment.sleep = { _ in
            pauses.withLock { $0 += 1 }
            try await Task.sleep(for: .seconds(3600))
        }
        let service = RenewingIdentity(first, of: provider, environment)
        let run = Task { await service.run() }
        while pauses.withLock({ $0 == 0 }) { try await Task.sleep(for: .milliseconds(1)) }
        try await service.renew()
        var attempts = begun.stream.makeAsyncIterator()
        _ = await attempts.next()
        #expect(pauses.withLock { $0 } < 100)
        _ = await attempts.next()
        #expect(provider.attempts.count == 2)
        run.cancel()
        await run.value
    }

    @Test func aFailureKeepsThePresentIdentity() async throws {
        provider.fail(from: .zero, to: .hours(20), with: ProviderError(.unavailable, "Down."))
        let service = service()
        await service.run(on: clock)
        let failures = provider.attempts.filter { $0 < .hours(20) }
        #expect(failures.count > 5 && failures.intervals.allSatisfy { $0 >= .seconds(30) && $0 <= .minutes(61) })
        let recovery = try #require(provider.renewals.first)
        #expect((.hours(20)...(.hours(21))).contains(recovery))
        let taken = installed.certificates.withLock { $0 }
        #expect(taken.count == provider.renewals.count, "nothing else was taken into use")
    }

    @Test("An identity that cannot be taken into use is not published")
    func whatCannotBeTakenIntoUseIsNotPublished() async throws {
        installed.failures.withLock { $0 = 3 }
        let service = service()
        await service.run(on: clock)
        let counter = try metrics.expectCounter(
            "certprov_renewal_failures_total", [("provider", "issuing"), ("code", "unsupportedAlgorithm")])
        #expect(counter.totalValue == 3)
        let taken = installed.certificates.withLock { $0 }
        #expect(taken.last == service.current.certificate)
        // The stored one is offered again: no other was asked for.
        #expect(provider.attempts.count == taken.count)
    }

    /// Connections are made with it until the new one is in use, and other processes with the same store come later.
    @Test("A replaced identity is kept for 70 minutes")
    func whatIsReplacedIsKeptForAnHour() async throws {
        let service = service()
        await service.run(on: clock)
        let times = [.zero] + provider.renewals
        #expect(provider.partings.count == times.count && times.count > 4)
        for (time, parting) in zip(times, provider.partings) {
            #expect((Duration.minutes(70)...(.minutes(73))).contains(parting - time), "\(time) \(parting)")
        }
    }

    @Test("Callers find the last three replaced identities, until these are destroyed")
    func whatIsReplacedCanStillBeUsed() async throws {
        let service = service()
        var certificates = [first.certificate]
        for _ in 0..<4 {
            try await service.renew()
            certificates.insert(service.current.certificate, at: 0)
            #expect(service.replaced.map(\.certificate) == Array(certificates.dropFirst().prefix(3)))
        }
        await service.run(on: clock)
        #expect(service.replaced.isEmpty)
    }

    /// Also where the first renewal was due before the service had started.
    @Test("An identity whose successor cannot be taken into use is not destroyed", arguments: [false, true])
    func whatWasNotReplacedIsNotDestroyed(isDueAtOnce: Bool) async throws {
        installed.failures.withLock { $0 = .max }
        if isDueAtOnce { try provider.store(provider.issue()) }
        let service = service()
        if isDueAtOnce { try? await service.renew() }
        await service.run(on: clock)
        #expect(provider.attempts.count > 0 && provider.partings.count == (isDueAtOnce ? 0 : 1), "\(provider.partings)")
    }

    @Test func aKeyThatDoesNotSignIsRefused() async throws {
        provider.answer { issued, _ throws(ProviderError) in
            let dead = TestKey(issued.key) { _, _ in [1, 2, 3] }
            return try Identity(certificateChain: issued.certificateChain, key: dead, provenance: issued.provenance)
        }
        let service = service()
        await service.run(on: clock)
        #expect(service.current.certificate == first.certificate && installed.certificates.withLock { $0.isEmpty })
    }

    @Test(arguments: [(Duration.hours(-2), Duration.hours(1)), (.hours(1), .hours(24))])
    func aCertificateThatIsNotValidIsRefused(from delay: Duration, validFor lifetime: Duration) async throws {
        let provider = provider
        provider.answer { _, _ throws(ProviderError) in
            do { return try provider.issue(validFor: lifetime, from: delay) } catch {
                throw ProviderError(.internal, "\(error)")
            }
        }
        let service = service()
        #expect(await failure { try await service.renew() }?.code == .protocolError)
        #expect(service.current.certificate == first.certificate)
    }

    @Test("A certificate without the key purposes of the usage is refused", arguments: IdentityUsage.sidesOfTLS)
    func aCertificateForAnotherSideIsRefused(usage: IdentityUsage) async throws {
        let (authority, wall) = (provider.authority, clock.wall)
        provider.answer { _, _ throws(ProviderError) in
            do {
                return try authority.issue(
                    "host", notBefore: wall, notAfter: wall + 2 * 86_400, for: IdentityUsage.server.purposes,
                    usage: usage)
            } catch {
                throw ProviderError(.internal, "\(error)")
            }
        }
        let service = service()
        guard usage != .server else {
            try await service.renew()
            #expect(service.current.certificate != first.certificate)
            return
        }
        let failure = await #expect(throws: ProviderError.self) { try await service.renew() }
        #expect(failure?.code == .protocolError)
        #expect(failure?.message.contains("TLS client authentication") == true, "\(String(describing: failure))")
        #expect(service.current.certificate == first.certificate)
    }

    @Test("A certificate that becomes valid in four minutes is accepted")
    func someMinutesOfADifferenceBetweenClocksAreTolerated() async throws {
        let provider = provider
        provider.answer { _, _ throws(ProviderError) in
            do { return try provider.issue(from: .minutes(4)) } catch {
                throw ProviderError(.internal, "\(error)")
            }
        }
        try await service().renew()
    }

    @Test("An identity stored by another process is used without a request to the provider")
    func whatAnotherProcessHasStoredIsTakenWithoutAsking() async throws {
        let service = service()
        let stored = try provider.issue(validFor: .days(10))
        provider.store(stored)
        await service.run(on: clock)
        #expect(provider.attempts.isEmpty && service.current.certificate == stored.certificate)
    }

    @Test("A renewal does not ask the user, and fails if a PIN is needed")
    func nobodyIsAsked() async throws {
        provider.answer { issued, interaction throws(ProviderError) in
            _ = try await interaction.requestSecret("PIN")
            return issued
        }
        let service = service()
        await service.run(on: clock)
        let counter = try metrics.expectCounter(
            "certprov_renewal_failures_total", [("provider", "issuing"), ("code", "interactionRequired")])
        #expect(counter.totalValue == Int64(provider.attempts.count) && counter.totalValue > 5)
        // A renewal that needs a person is not tried in quick succession, not even in the beginning.
        #expect(provider.attempts.intervals.allSatisfy { $0 > .minutes(10) })
    }

    @Test func aPendingAnswerIsAskedForWhenTheServerSays() async throws {
        let error = ProviderError(.pending, "Later.", retryAfter: .hours(2))
        provider.fail(from: .zero, to: .hours(20), with: error)
        await service().run(on: clock)
        let waits = provider.attempts.filter { $0 < .hours(20) }.intervals
        #expect(!waits.isEmpty && waits.allSatisfy { $0 >= .hours(2) && $0 <= .hours(2.25) }, "\(waits)")
        let pending = try metrics.expectCounter(
            "certprov_renewals_total", [("provider", "issuing"), ("result", "pending")])
        #expect(pending.totalValue == Int64(waits.count + 1))
    }

    @Test("A pending renewal is logged as a warning from the margin on, and the end of the identity as an error")
    func theLogIsMoreUrgentFromTheMarginOn() async throws {
        provider.fail(from: .zero, to: .hours(30), with: ProviderError(.pending, "Later."))
        let log = TestLog()
        var environment = clock.environment
        (environment.logger, environment.metrics) = (log.logger, metrics)
        let service = RenewingIdentity(first, of: provider, environment)
        await service.run(on: clock)
        // The margin of a day is a twentieth of it.
        let failures = provider.attempts.filter { $0 < .hours(30) }
        let expected = failures.map { $0 < .hours(22.8) ? Logger.Level.info : $0 <= .hours(24) ? .warning : .error }
        #expect(Set(expected) == [.info, .warning, .error])
        let levels = log.lines.filter { $0.message.hasPrefix("renewal ") }.map(\.level)
        #expect(Array(levels.prefix(expected.count)) == expected, "\(levels)")
        let expired = try metrics.expectCounter(
            "certprov_renewal_failures_total", [("provider", "issuing"), ("code", "expired")])
        #expect(expired.totalValue == Int64(expected.count { $0 == .error }))
    }

    @Test("After a reload, an identity that is due is tried at once, as after no failure")
    func aReloadEndsThePauseAfterFailures() async throws {
        try await clock.environment.sleep(.hours(20))
        provider.fail(from: .zero, to: .days(3), with: ProviderError(.unavailable, "Down."))
        let service = service()
        for _ in 0..<5 { try? await service.renew() }
        #expect(service.nextAttempt > clock.wall)
        try await service.adopt(first, isOfSameProvider: false) { _ in }
        #expect(service.nextAttempt == clock.wall)
        try? await service.renew()
        #expect(abs(service.nextAttempt.timeIntervalSince(clock.wall) - 60) < 1)
    }

    @Test("After a renewal by another provider, its announcements are followed and the metrics name it")
    func anotherProviderTakesOver() async throws {
        let provider = provider
        provider.answer { issued, _ throws(ProviderError) in
            try Identity(
                certificateChain: issued.certificateChain, key: issued.key,
                provenance: .init(provider: ProviderID("other")))
        }
        var environment = clock.environment
        environment.metrics = metrics
        environment.sleep = { _ in try await Task.sleep(for: .seconds(3600)) }
        let service = RenewingIdentity(first, of: provider, environment)
        let run = Task { await service.run() }
        func isFollowed(_ count: Int) async throws -> Bool {
            for _ in 0..<10_000 where provider.followers < count { try await Task.sleep(for: .milliseconds(1)) }
            return provider.followers == count
        }
        #expect(try await isFollowed(1))
        try await service.renew()
        #expect(try await isFollowed(2))
        let expiration = try? metrics.expectGauge(
            "certprov_certificate_expiration_timestamp_seconds", [("provider", "other")])
        #expect(expiration?.lastValue == service.current.certificate.notValidAfter.timeIntervalSince1970)
        run.cancel()
        await run.value
    }

    @Test(
        "While another process renews, the renewal is pending; another refusal is a failure", arguments: [true, false])
    func anotherProcessIsNoFailure(isBusy: Bool) async throws {
        let busy = ProviderError(
            .operationNotAllowed, "Another operation is in progress.", reason: isBusy ? .busy : nil)
        provider.fail(from: .zero, to: .hours(20), with: busy)
        await service().run(on: clock)
        let results = ["pending", "failed"].map { result in
            try? metrics.expectCounter("certprov_renewals_total", [("provider", "issuing"), ("result", result)])
        }
        let count = Int64(provider.attempts.count - provider.renewals.count)
        #expect(count > 0 && results.map { $0?.totalValue } == (isBusy ? [count, nil] : [nil, count]))
    }

    @Test func theSameCertificateAgainIsPending() async throws {
        let first = first
        provider.answer { _, _ in first }
        let service = service()
        #expect(await failure { try await service.renew() }?.code == .pending)
    }

    @Test(
        "An identity that comes back after its end is counted, if its key proves where it lives",
        arguments: [true, false])
    func recoveriesAreCounted(attests: Bool) async throws {
        provider.fail(from: .zero, to: .hours(30), with: ProviderError(.unavailable, "The server is away."))
        let attester = try attests ? InventedTPM().attester(of: first.key.publicKey) : nil
        await service(try first.with(TestKey(first.key, attester: attester))).run(on: clock)
        let counter = try? metrics.expectCounter("certprov_recoveries_total", [("provider", "issuing")])
        #expect(counter?.totalValue == (attests ? 1 : nil))
    }

    @Test func monitoringSeesExpiryResultsAndTheNextAttempt() async throws {
        let service = service()
        let label = [("provider", "issuing")]
        let expiration = try metrics.expectGauge("certprov_certificate_expiration_timestamp_seconds", label)
        #expect(expiration.lastValue == first.certificate.notValidAfter.timeIntervalSince1970)
        await service.run(on: clock)
        #expect(expiration.lastValue == service.current.certificate.notValidAfter.timeIntervalSince1970)
        let next = try metrics.expectGauge("certprov_renewal_next_attempt_timestamp_seconds", label)
        #expect(abs(try #require(next.lastValue) - service.nextAttempt.timeIntervalSince1970) <= 1)
        let renewed = try metrics.expectCounter("certprov_renewals_total", label + [("result", "renewed")])
        #expect(renewed.totalValue == Int64(provider.renewals.count))
    }
}

import CertificateProviding
import FoundationEssentials
import TestSupport
import Testing

@testable import Renewal

/// A certificate for a day, and a host whose clocks do not go on evenly.
@Suite struct ClockTests {
    private func run(
        for time: Duration, _ events: [TurnedClock.Event]
    ) async throws -> (IssuingProvider, RenewingIdentity, TurnedClock) {
        let clock = TurnedClock(until: time, events)
        let provider = try IssuingProvider(clock, lifetime: .days(1))
        let first = try provider.issue()
        let service = RenewingIdentity(first, of: provider, clock.environment)
        await service.run(on: clock)
        return (provider, service, clock)
    }

    @Test(arguments: [(10.0, 10.0), (1, 18), (15.9, 6), (5, 100), (14, 10)])
    func aMachineThatWasSuspendedOverTheRenewalPointRenewsOnceWhenItIsBack(at hour: Double, for hours: Double)
        async throws
    {
        let end = Duration.hours(hour + hours)
        let (provider, _, _) = try await run(for: end + .hours(1), [.suspension(at: .hours(hour), .hours(hours))])
        #expect(provider.renewals.count == 1, "\(provider.renewals)")
        let renewal = try #require(provider.renewals.first)
        // One before it was suspended is right as well, where it was due by then.
        #expect((end...(end + .seconds(61))).contains(renewal) || renewal < .hours(hour))
    }

    @Test(arguments: [-30.0, -20, -10, -3, -1, 1, 3, 10, 20, 30])
    func aClockThatIsSetAndSetBackNeitherRenewsTwiceInARowNorOversleeps(by hours: Double) async throws {
        let (provider, service, clock) = try await run(
            for: .hours(60), [.step(at: .hours(5), .hours(hours)), .step(at: .hours(17), .hours(-hours))])
        let renewals = provider.renewals
        #expect(renewals.intervals.allSatisfy { $0 >= .hours(1) }, "\(renewals)")
        // Three would do without the steps; a clock that is ahead asks for some more.
        #expect((3...15).contains(renewals.count), "\(renewals)")
        let expiry = service.current.certificate.notValidAfter
        #expect(expiry > clock.truth, "\(renewals)")
        // Once the clock is right again, no certificate comes to its last third.
        let late = renewals.filter { $0 > .hours(17.1) }.intervals
        #expect(late.allSatisfy { $0 <= .hours(16.1) }, "\(renewals)")
    }

    @Test func aClockThatWasBehindWhenTheCertificateCameDoesNotOversleep() async throws {
        // Two days behind in the beginning; set right after an hour.
        let (provider, _, _) = try await run(
            for: .hours(24), [.step(at: .zero, .hours(-48)), .step(at: .hours(1), .hours(48))])
        #expect(provider.renewals.count == 1 && provider.renewals.allSatisfy { $0 <= .hours(16.1) })
    }
}

/// A server that is down for days, and a certificate for thirty.
@Suite struct OutageTests {
    private func run(downFrom begin: Double, to end: Double) async throws -> IssuingProvider {
        let clock = TurnedClock(until: .days(45))
        let provider = try IssuingProvider(clock, lifetime: .days(30))
        let first = try provider.issue()
        provider.fail(from: .days(begin), to: .days(end), with: ProviderError(.unavailable, "Down."))
        let service = RenewingIdentity(first, of: provider, clock.environment)
        await service.run(on: clock)
        return provider
    }

    @Test(
        "A host renews within 62 minutes after the server is back",
        .enabled(if: TestLength.hasSeconds, "it takes seconds"),
        arguments: [(17.0, 22.0), (17, 33)])
    func theHostIsBackSoonAfterTheServer(from begin: Double, to end: Double) async throws {
        let provider = try await run(downFrom: begin, to: end)
        let failures = provider.attempts.filter { $0 < .days(end) }
        #expect(failures.count > 24, "it went on")
        #expect(failures.intervals.allSatisfy { $0 >= .seconds(30) && $0 <= .minutes(62) })
        let recovery = try #require(provider.renewals.first)
        #expect((.days(end)...(.days(end) + .minutes(62))).contains(recovery))
        #expect(provider.renewals.intervals.allSatisfy { $0 > .days(17) }, "and then as before")
    }
}

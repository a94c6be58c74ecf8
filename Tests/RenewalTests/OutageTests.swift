import CertificateProviding
import FoundationEssentials
import TestSupport
import Testing

@testable import Renewal

/// A server that is down for days, and a certificate for thirty.
@Suite struct OutageTests {
    private func run(downFrom begin: Double, to end: Double) async throws -> IssuingProvider {
        let clock = TurnedClock(until: .days(45))
        let provider = try IssuingProvider(clock, lifetime: .days(30))
        let first = try provider.issue()
        provider.fail(from: .days(begin), to: .days(end), with: ProviderError(.unavailable, "Down."))
        let service = RenewingIdentity(
            first, of: provider, executor: BlockingExecutor { $0() }, environment: clock.environment)
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

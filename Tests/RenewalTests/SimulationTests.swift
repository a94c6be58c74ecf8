import TestSupport
import Testing

@testable import RenewalSimulation

/// Many hosts that got their certificates in the same minute.
@Suite struct SimulationTests {
    private static let hour = 3600.0
    private static let day = 86_400.0

    @Test func aHundredThousandHostsRenewSpreadOut() {
        let renewals = Population(lifetime: Self.day, end: 17 * Self.hour, binWidth: 1).run().renewals
        #expect(renewals.reduce(0, +) == 100_000)
        let busy = renewals.filter { $0 > 0 }
        let mean = 100_000 / Double(busy.count)
        #expect(mean < 20, "in \(busy.count) seconds")
        #expect(Double(busy.max() ?? 0) < 3 * mean)
        #expect(renewals.firstIndex { $0 > 0 }.map { Double($0) >= 14.4 * Self.hour } == true)
        #expect(renewals.lastIndex { $0 > 0 }.map { Double($0) <= 16 * Self.hour + 60 } == true)
    }

    @Test("The renewals of many hosts disperse further each time")
    func theyDisperseFurtherWithEachRenewal() {
        var population = Population(lifetime: Self.day, end: 5 * Self.day, binWidth: 60)
        population.hosts = 5000
        let outcome = population.run()
        let firstRound = outcome.renewals[..<(20 * 60)].max() ?? 0
        let lastRound = outcome.renewals[(4 * 24 * 60)...].max() ?? 0
        #expect(lastRound * 3 < firstRound * 2, "\(firstRound), \(lastRound)")
        #expect(outcome.shortestInterval > 14 * Self.hour)
    }

    @Test(
        "After an outage, the hosts do not all renew at once", .enabled(if: TestLength.hasSeconds, "it takes seconds"),
        arguments: [(22.0, false), (33, true)])
    func afterAnOutageTheyDoNotComeBackAtOnce(until end: Double, hasExpired: Bool) {
        var population = Population(
            lifetime: 30 * Self.day, outage: 17 * Self.day..<end * Self.day, end: 40 * Self.day, binWidth: 60)
        population.hosts = 2000
        let outcome = population.run()
        #expect(outcome.renewals.reduce(0, +) == 2000, "and nobody twice")
        let expired = outcome.expired.max() ?? 0
        #expect(expired == (hasExpired ? 2000 : 0))
        // In a minute of the outage each hundredth host asks; so do they afterwards.
        let busiest = outcome.renewals.max() ?? 0
        #expect(busiest < 2000 / 15, "\(busiest)")
        let back = outcome.renewals[Int(end * 24 * 60)..<Int(end * 24 * 60) + 62].reduce(0, +)
        #expect(back == 2000, "within the hour")
    }
}

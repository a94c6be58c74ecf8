import CertificateProviding
import FoundationEssentials
import Testing

@testable import Renewal

@Suite struct RenewalPlanTests {
    private let unavailable = ProviderError(.unavailable, "Down.")

    /// Due at 14.4 to 16 hours of a day's certificate.
    private func schedule(draw: Double = 0, from start: Double = 0) -> RenewalSchedule {
        RenewalSchedule(
            from: Date(timeIntervalSince1970: start * 3600), to: Date(timeIntervalSince1970: (start + 24) * 3600),
            policy: RenewalPolicy(), draw: draw)
    }

    private func moment(_ hours: Double, uptime: Double? = nil) -> Moment {
        Moment(wall: Date(timeIntervalSince1970: hours * 3600), uptime: .hours(uptime ?? hours))
    }

    @Test("A renewal is due after two thirds of the lifetime")
    func itIsTimeWhenTheCertificateIsDue() {
        let plan = RenewalPlan(schedule())
        #expect(abs(plan.delay(at: moment(10)) / .hours(6) - 1) < 0.001)
        #expect(plan.delay(at: moment(16.01)) <= .zero)
    }

    @Test func failuresWaitLongerEachTimeUpToALimit() {
        var plan = RenewalPlan(schedule())
        var waits: [Double] = []
        for _ in 0..<12 {
            plan.fail(with: unavailable, at: moment(16.1), draw: 0.999)
            waits.append(plan.delay(at: moment(16.1)) / .seconds(1))
        }
        #expect(waits.prefix(4).map { $0.rounded() } == [90, 150, 270, 510])
        // A sixteenth of the eight hours that are left at the renewal point, and the floor.
        #expect(waits.allSatisfy { $0 <= 1830 } && waits[11] > 1800)
        #expect(waits.reduce(0, +) < 6 * 3600, "a dozen attempts fit")
    }

    @Test(
        "An update from this host's files is asked for within seconds, also while the pause after a failure is an hour")
    func filesDoNotWaitForAPause() {
        var plan = RenewalPlan(schedule())
        for _ in 0..<12 { plan.fail(with: unavailable, at: moment(16.1), draw: 0.999) }
        plan.announceUpdate()
        #expect(plan.delay(at: moment(16.2)) > .seconds(600))
        plan.announceUpdate(isLocal: true)
        #expect(plan.delay(at: moment(16.2)) <= .zero)
        plan.begin(at: moment(16.2))
        plan.fail(with: unavailable, at: moment(16.2), draw: 0.999)
        #expect(plan.delay(at: moment(16.2)) > .seconds(600), "The source announces again what was not taken.")
        plan.announceUpdate(isLocal: true)
        #expect(plan.delay(at: moment(16.2)) <= .seconds(2))
    }

    @Test("The first retry delay is drawn from 30 to 90 seconds")
    func theWholeRangeIsDrawnFromAboveAFloor() {
        for (draw, seconds) in [(0.0, 30.0), (0.5, 60), (0.999, 90)] {
            var plan = RenewalPlan(schedule())
            plan.fail(with: unavailable, at: moment(16.1), draw: draw)
            #expect(abs(plan.delay(at: moment(16.1)) / .seconds(1) - seconds) < 1)
        }
    }

    /// A sixteenth of the time from the renewal to expiry is half an hour for a certificate of a day.
    @Test(
        "After expiry, the longest delay depends on the lifetime, whatever the server asks for",
        arguments: [
            (Duration.minutes(10), Duration.seconds(90)), (.hours(1), .seconds(105)), (.days(1), .seconds(1830)),
            (.days(90), .seconds(3630)),
        ], [nil, Duration.days(1)])
    func afterExpiryItGoesOn(_ certificate: (lifetime: Duration, longest: Duration), retryAfter: Duration?) {
        let expiry = Date(timeIntervalSince1970: certificate.lifetime / .seconds(1))
        let schedule = RenewalSchedule(
            from: Date(timeIntervalSince1970: 0), to: expiry, policy: RenewalPolicy(), draw: 0)
        let error = ProviderError(.unavailable, "Down.", retryAfter: retryAfter)
        let after = Moment(wall: expiry.addingTimeInterval(1), uptime: .zero)
        var plan = RenewalPlan(schedule)
        for _ in 0..<5000 { plan.fail(with: error, at: after, draw: 0.999) }
        let wait = plan.delay(at: after)
        #expect(wait > certificate.longest * 0.5 && wait <= certificate.longest, "\(wait)")
    }

    @Test func aPauseIsNotShortenedByTheWallClock() {
        var plan = RenewalPlan(schedule())
        plan.fail(with: unavailable, at: moment(16.1), draw: 0.5)
        #expect(plan.delay(at: moment(40, uptime: 16.1)) == .seconds(60))
        #expect(plan.delay(at: moment(16.1, uptime: 17)) <= .zero)
    }

    /// The margin of a day's certificate begins at 22.8 hours.
    @Test(arguments: [
        (16.1, 60.0, 60.0, 66.0), (16.1, 1, 30, 33), (16.1, 7200, 7200, 7920), (16.1, 86_400, 24_120, 21_708),
        (16.1, 1e9, 24_120, 21_708), (22.7, 1e9, 1170, 1053), (23, 1e9, 900, 810), (23.999, 1e9, 30, 27),
        (25, 1e9, 1830, 1647),
    ])
    func aServersRetryAfterIsKeptUpToTheMargin(hours: Double, asked: Double, first: Double, last: Double) {
        let error = ProviderError(.pending, "Later.", retryAfter: .seconds(asked))
        for (draw, wait) in [(0.0, first), (1.0, last)] {
            var plan = RenewalPlan(schedule())
            plan.fail(with: error, at: moment(hours), draw: draw)
            #expect(abs(plan.delay(at: moment(hours)) / .seconds(1) - wait) < 1, "\(draw)")
        }
    }

    @Test("A configured margin limits the wait that Retry-After asks for")
    func aMarginOfOnesOwnIsKept() {
        let schedule = RenewalSchedule(
            from: Date(timeIntervalSince1970: 0), to: Date(timeIntervalSince1970: 24 * 3600),
            policy: RenewalPolicy(margin: .hours(6)), draw: 0)
        var plan = RenewalPlan(schedule)
        plan.fail(with: ProviderError(.unavailable, "Later.", retryAfter: .hours(20)), at: moment(16.5), draw: 0)
        #expect(abs(plan.delay(at: moment(16.5)) / .hours(1) - 1.875) < 0.001)
        plan.fail(with: ProviderError(.unavailable, "Later.", retryAfter: .hours(20)), at: moment(16), draw: 0)
        #expect(abs(plan.delay(at: moment(16)) / .hours(1) - 2) < 0.001)
    }

    @Test func aCertificateThatIsDueOnArrivalIsNotRenewedAtOnce() {
        var plan = RenewalPlan(schedule())
        // Four hours are left of it.
        plan.succeed(with: schedule(from: -20), at: moment(0))
        #expect(plan.delay(at: moment(0)) / .hours(1) > 1.3)
        // It has expired already.
        plan.succeed(with: schedule(from: -30), at: moment(0))
        #expect(plan.delay(at: moment(0)) / .hours(1) > 7.9)
    }
}

@Suite struct RenewalBackoffTests {
    /// A retry can't help until the user has repaired the cause.
    @Test(
        arguments: [
            .configurationMissing, .configurationInvalid, .noCertificateProvider, .serverNotTrusted, .wrongPassword,
            .pinLocked,
        ] as [ProviderError.Code])
    func aFailureThatNeedsTheUserIsRetriedRarelyFromTheStart(code: ProviderError.Code) {
        #expect(delay(code, failures: 1) == delay(code, failures: 20))
    }

    @Test(
        "Unavailable, timed-out and pending renewals are first retried within 90 seconds",
        arguments: [.unavailable, .timedOut, .pending] as [ProviderError.Code])
    func otherFailuresAreRetriedSoon(code: ProviderError.Code) {
        #expect(delay(code, failures: 1) == .seconds(90))
        #expect(delay(code, failures: 20) == .seconds(3630))
    }

    private func delay(_ code: ProviderError.Code, failures: Int) -> Duration {
        RenewalBackoff().delay(
            after: ProviderError(code, "It failed."), failures: failures, window: .days(1),
            longestDelay: nil, draw: 1)
    }
}

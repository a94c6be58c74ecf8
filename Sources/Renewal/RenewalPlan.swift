package import CertificateProviding
import FoundationEssentials

/// When the next attempt is to be made: the arithmetic of ``RenewingIdentity``, without its effects.
///
/// The wall clock alone says whether a certificate is due, and it is looked at again whenever somebody asks: so a clock
/// that is set, or a suspended machine, is seen at the next look. Pauses (between failures, and after a success) are
/// counted on the clock that nobody can set, so that setting the other one neither drops nor prolongs them.
package struct RenewalPlan: Sendable {
    package private(set) var schedule: RenewalSchedule
    private let backoff: RenewalBackoff
    private var failures = 0
    /// The uptime before which there is no attempt.
    private var earliest: Duration?

    package init(_ schedule: RenewalSchedule, backoff: RenewalBackoff = RenewalBackoff()) {
        self.schedule = schedule
        self.backoff = backoff
    }

    /// How long it is to the next attempt, as far as can be told now; not positive when it is time.
    package func delay(at moment: Moment) -> Duration {
        let due = moment.wall.duration(to: schedule.due)
        return max(due, earliest.map { $0 - moment.uptime } ?? due)
    }

    package mutating func succeed(with schedule: RenewalSchedule, at moment: Moment) {
        self.schedule = schedule
        failures = 0
        earliest = moment.uptime + max(pause(at: moment), backoff.floor)
    }

    package mutating func fail(with error: CertificateProviderError, at moment: Moment, draw: Double) {
        failures = min(failures, 1000) + 1
        let hasExpired = moment.wall >= schedule.expiry
        let window = hasExpired ? nil : schedule.due.duration(to: schedule.expiry)
        earliest =
            moment.uptime
            + backoff.delay(
                after: error, failures: failures, window: window,
                longestDelay: hasExpired ? nil : longestDelay(at: moment),
                draw: draw)
    }

    /// How long a server may put us off: until the margin before expiry, and within that for a quarter of what is left.
    private func longestDelay(at moment: Moment) -> Duration {
        let margin = moment.wall.duration(to: schedule.latest)
        return max(margin, moment.wall.duration(to: schedule.expiry) / 4)
    }

    /// A new certificate is not renewed before half of the way to its renewal point is over, whatever the wall clock
    /// says meanwhile. One that is due on arrival (a clock that is ahead, an authority that is at its own end) is not
    /// renewed before a third of what it has left.
    private func pause(at moment: Moment) -> Duration {
        let lead = moment.wall.duration(to: schedule.due)
        if lead > .zero { return min(lead, schedule.start.duration(to: schedule.due)) / 2 }
        let remaining = moment.wall.duration(to: schedule.expiry)
        return (remaining > .zero ? remaining : schedule.start.duration(to: schedule.expiry)) / 3
    }
}

extension Date {
    fileprivate func duration(to other: Date) -> Duration { .seconds(other.timeIntervalSince(self)) }
}

package import CertificateProviding
import FoundationEssentials

/// The time of the next attempt: the arithmetic of ``RenewingIdentity``, without side effects.
///
/// The wall clock alone decides whether a certificate is due. It is read at each call, so a clock change or a suspended
/// machine is noticed then. Pauses (after failures and successes) are measured with the clock that cannot be set, so
/// that setting the wall clock neither skips nor extends them. An announced update is due before the certificate is.
package struct RenewalPlan: Sendable {
    package private(set) var schedule: RenewalSchedule
    private let backoff: RenewalBackoff
    private var failures = 0
    /// The uptime before which no attempt is made.
    private var earliest = Duration.zero
    private enum Update { case none, announced, requested }
    /// The provider's last announcement, until an attempt that began after it had an answer.
    private var update = Update.none
    /// The uptime before which no announced update is asked for.
    private var nextUpdate = Duration.zero

    /// The uptime of the last success, from which an issuer that brings the next renewal forward must leave some time.
    private var succeeded: Duration?
    /// See ``succeeded``.
    private static let advisedPause = Duration.seconds(3600)

    /// Whether the last announcement was of a source on this host.
    private var isLocal = false

    /// The minimum time between two updates that a provider announces.
    static let updateInterval = Duration.seconds(60)
    /// The same for a source on this host, and the time between two looks at the store.
    static let localInterval = Duration.seconds(2)

    package init(_ schedule: RenewalSchedule, backoff: RenewalBackoff = RenewalBackoff()) {
        self.schedule = schedule
        self.backoff = backoff
    }

    /// Returns the time until the next attempt, as far as known now; zero or negative if it is due.
    package func delay(at moment: Moment) -> Duration {
        let delay = max(moment.wall.duration(to: schedule.due), earliest - moment.uptime)
        guard update != .none else { return delay }
        // An update does not wait for the pause after a success, nor one on this host for that after a failure.
        return min(delay, (failures > 0 && !isLocal ? earliest : nextUpdate) - moment.uptime)
    }

    mutating func announceUpdate(isLocal: Bool = false) {
        update = .announced
        self.isLocal = isLocal
    }

    /// Notes that an attempt begins, which also asks for an update that was announced before.
    mutating func begin(at moment: Moment) {
        guard update != .none else { return }
        update = .requested
        nextUpdate = moment.uptime + (isLocal ? Self.localInterval : Self.updateInterval)
    }

    /// Notes that the issuer has moved the renewal.
    mutating func reschedule(_ schedule: RenewalSchedule, at moment: Moment) {
        // The pause after a success ends early, but not for an issuer that wants each new certificate to be renewed at once.
        if schedule.due < self.schedule.due, failures == 0 {
            earliest = min(earliest, succeeded.map { $0 + Self.advisedPause } ?? moment.uptime)
        }
        self.schedule = schedule
    }

    package mutating func succeed(with schedule: RenewalSchedule, at moment: Moment) {
        self.schedule = schedule
        succeeded = moment.uptime
        failures = 0
        earliest = moment.uptime + max(pause(at: moment), backoff.floor)
        endUpdate()
    }

    /// Notes that the provider has the same certificate still, or that there is a new one.
    mutating func endUpdate() { if update == .requested { update = .none } }

    /// Begins anew with another configuration. An update that was announced for the same certificate is still to be asked for.
    mutating func restart(with schedule: RenewalSchedule, isSameCertificate: Bool) {
        let former = self
        self = RenewalPlan(schedule, backoff: backoff)
        if isSameCertificate { update = former.update }
    }

    package mutating func fail(with error: ProviderError, at moment: Moment, draw: Double) {
        failures = min(failures, 1000) + 1
        // A source on this host announces again what has not been taken.
        if isLocal { endUpdate() }
        earliest =
            moment.uptime
            + backoff.delay(
                after: error, failures: failures, window: schedule.due.duration(to: schedule.expiry),
                longestDelay: longestDelay(at: moment), draw: draw)
    }

    /// Returns the maximum by which a server may postpone an attempt: until the margin before expiry, and within the
    /// margin for a quarter of the remaining time; `nil` after expiry.
    private func longestDelay(at moment: Moment) -> Duration? {
        let remaining = moment.wall.duration(to: schedule.expiry)
        return remaining > .zero ? max(moment.wall.duration(to: schedule.latest), remaining / 4) : nil
    }

    /// Returns the minimum pause after a success. A new certificate is not renewed before half of the time to its
    /// renewal point is over, whatever the wall clock shows. One that is due immediately (a fast clock, a CA near its
    /// own expiry) is not renewed before a third of its remaining time is over.
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

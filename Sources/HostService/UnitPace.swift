import IdentityFiles
import Synchronization

/// Joins the jobs that several identities have for one unit: systemd refuses the sixth start of a unit in ten seconds
/// (StartLimitBurst=, systemd.unit(5)), and leaves it dead.
final class UnitPace: Sendable {
    /// When each job begins, or has begun last.
    private let begins = Mutex<[UnitJob: ContinuousClock.Instant]>([:])
    private let settling: Duration
    private let interval: Duration
    private let now: @Sendable () -> ContinuousClock.Instant

    /// - Parameters:
    ///   - settling: The time for which a job waits for other identities, which are often renewed together.
    ///   - interval: The time between two jobs of one unit.
    init(
        settling: Duration = .seconds(2), interval: Duration = .seconds(10),
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        (self.settling, self.interval, self.now) = (settling, interval, now)
    }

    /// Returns the time until a job may begin; `nil` if it begins soon for another identity.
    func pause(before job: UnitJob) -> Duration? {
        let now = now()
        return begins.withLock { begins in
            let last = begins[job]
            if let last, last > now { return nil }
            let next = max(now + settling, last.map { $0 + interval } ?? now)
            begins[job] = next
            return next - now
        }
    }
}

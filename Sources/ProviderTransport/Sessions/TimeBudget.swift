import CertificateProviding
import Synchronization

/// The time that the server may take for a whole run, over all requests of all its sessions. The time that the user
/// takes for an answer, and the pauses while a request is pending, are not counted.
public final class TimeBudget: Sendable {
    private let left: Mutex<Duration>
    private let now: @Sendable () -> ContinuousClock.Instant

    /// Creates a budget of which nothing is spent.
    ///
    /// - Parameters:
    ///   - whole: The time for all requests together.
    ///   - retryPolicy: Has the clock.
    public init(_ whole: Duration, _ retryPolicy: RetryPolicy) {
        left = Mutex(whole)
        now = retryPolicy.now
    }

    /// Runs work that waits for the server, and deducts the time that it takes. The work must end at the given instant.
    /// Call it for one piece of work at a time.
    ///
    /// - Parameters:
    ///   - parts: The work may take one of so many equal parts of the remaining time.
    ///   - names: The setting that the error names.
    /// - Throws: `timedOut` if no time is left; the work is not started then.
    func spend<Answer>(
        oneOf parts: Int = 1, _ names: ServerSettingNames = ServerSettingNames(),
        _ work: (_ end: ContinuousClock.Instant) async throws(ProviderError) -> Answer
    ) async throws(ProviderError) -> Answer {
        let left = left.withLock(\.self)
        guard left > .zero else {
            throw ProviderError(
                .timedOut, "The server has used up its time; \(names.adviceForSlowness).")
        }
        let start = now()
        defer {
            let spent = start.duration(to: now())
            self.left.withLock { $0 -= spent }
        }
        return try await work(start + left / parts)
    }
}

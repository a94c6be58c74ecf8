import CertificateProviding
import Synchronization

/// The time that a server may take for a whole run, however many requests that has. What a person takes for an answer,
/// and the wait between two questions for a decision, are not its time.
final class TimeBudget: Sendable {
    private let left: Mutex<Duration>
    private let now: @Sendable () -> ContinuousClock.Instant

    init(_ whole: Duration, _ retryPolicy: RetryPolicy) {
        left = Mutex(whole)
        now = retryPolicy.now
    }

    /// Does what the server is waited for with, until the given instant at the latest. One at a time.
    ///
    /// - Parameter parts: The work may take one of so many equal parts of what is left.
    /// - Throws: `timedOut` where no time is left: nothing is sent whose answer nobody would wait for.
    func spend<Answer>(
        oneOf parts: Int = 1, _ work: (_ end: ContinuousClock.Instant) async throws(CertificateProviderError) -> Answer
    ) async throws(CertificateProviderError) -> Answer {
        let left = left.withLock(\.self)
        guard left > .zero else {
            throw CertificateProviderError(
                .timedOut,
                "The server has used up the time that it has for an enrolment; see whether it is overloaded, or allow more with "
                    + "'timeout'.")
        }
        let start = now()
        defer {
            let spent = start.duration(to: now())
            self.left.withLock { $0 -= spent }
        }
        return try await work(start + left / parts)
    }
}

/// The delays between attempts, with the clock and the randomness that they use. Tests replace both.
public struct RetryPolicy: Sendable {
    /// A clock that also runs while the host is suspended.
    public var now: @Sendable () -> ContinuousClock.Instant
    /// Suspends for a duration. Throws if the task is cancelled.
    public var sleep: @Sendable (Duration) async throws -> Void
    /// Returns a random number from 0 to 1.
    public var random: @Sendable () -> Double

    /// Creates a policy.
    public init(
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now },
        sleep: @escaping @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) },
        random: @escaping @Sendable () -> Double = { .random(in: 0...1) }
    ) {
        self.now = now
        self.sleep = sleep
        self.random = random
    }

    /// The maximum number of attempts, including the first.
    static let maximumAttempts = 3
    private static let floor = Duration.milliseconds(200)
    private static let base = Duration.seconds(1)

    /// Returns the delay after a failed attempt: random, within a range that doubles (full jitter), so that hosts that
    /// failed together do not come back together.
    ///
    /// - Parameter attempt: The number of attempts so far.
    func delay(after attempt: Int) -> Duration {
        Self.floor + Self.base * (1 << min(max(attempt, 1) - 1, 10)) * random()
    }

    /// Returns the delay before the server is asked again about a pending request (RFC 8894, section 4.4): the
    /// server's, or a growing one if the server names none or zero.
    ///
    /// - Parameters:
    ///   - poll: The number of answers so far that said that the request is pending.
    ///   - retryAfter: The delay that the server has asked for, if any.
    public func delay(beforePoll poll: Int, retryAfter: Duration?) -> Duration {
        if let retryAfter, retryAfter > .zero { return retryAfter }
        return Self.pollFloor + delay(after: poll)
    }

    /// Pending requests are decided by a person or a queue, so the server is asked less often.
    private static let pollFloor = Duration.seconds(4)

    /// Returns the delay that a server has asked for, and a random addition, since other hosts were told the same.
    func delay(afterBeingTold retryAfter: Duration) -> Duration {
        retryAfter + Self.floor + Self.base * random()
    }
}

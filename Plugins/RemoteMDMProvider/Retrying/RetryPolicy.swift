/// The delays of an enrolment, with the clock and the randomness that they use. Tests replace both.
struct RetryPolicy: Sendable {
    var now: @Sendable () -> ContinuousClock.Instant = { .now }
    var sleep: @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) }
    /// Returns a random number from 0 to 1.
    var draw: @Sendable () -> Double = { .random(in: 0...1) }

    /// The maximum number of attempts, including the first.
    static let maximumAttempts = 3
    private static let floor = Duration.milliseconds(200)
    private static let base = Duration.seconds(1)

    /// Returns the delay after a failed attempt: random, within a range that doubles (full jitter), so that hosts that
    /// failed together do not come back together.
    func delay(after attempt: Int) -> Duration {
        Self.floor + Self.base * (1 << min(max(attempt, 1) - 1, 10)) * draw()
    }

    /// Returns the delay before a pending request is repeated (RFC 8894, section 4.4): the server's, or a growing one
    /// if the server names none or zero.
    func delay(beforePoll poll: Int, told: Duration?) -> Duration {
        if let told, told > .zero { return told }
        return Self.pollFloor + delay(after: poll)
    }

    /// Pending requests are decided by a person or a queue, so the server is asked less often.
    private static let pollFloor = Duration.seconds(4)

    /// Returns the delay that a server has asked for, and a random addition, since other hosts were told the same.
    func delay(afterBeingTold retryAfter: Duration) -> Duration { retryAfter + Self.floor + Self.base * draw() }
}

/// How an enrolment waits: its clock and its randomness, so that tests need neither.
struct RetryPolicy: Sendable {
    var now: @Sendable () -> ContinuousClock.Instant = { .now }
    var sleep: @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) }
    /// From 0 to 1.
    var draw: @Sendable () -> Double = { .random(in: 0...1) }

    /// How often something is asked at the most, the first time included.
    static let maximumAttempts = 3
    private static let floor = Duration.milliseconds(200)
    private static let base = Duration.seconds(1)

    /// How long to wait after an attempt that came to nothing: drawn from the whole of a range that doubles (full
    /// jitter), so that hosts that failed together do not come back together.
    func delay(after attempt: Int) -> Duration {
        Self.floor + Self.base * (1 << min(max(attempt, 1) - 1, 10)) * draw()
    }

    /// How long to wait for a decision (RFC 8894, section 4.4): as the server says, and longer each time where it says
    /// nothing, or that it may be asked at once.
    func delay(beforePoll poll: Int, told: Duration?) -> Duration {
        if let told, told > .zero { return told }
        return Self.pollFloor + delay(after: poll)
    }

    /// A person decides, or a queue.
    private static let pollFloor = Duration.seconds(4)

    /// What a server asks for, and a little more: others were told the same.
    func delay(afterBeingTold retryAfter: Duration) -> Duration { retryAfter + Self.floor + Self.base * draw() }
}

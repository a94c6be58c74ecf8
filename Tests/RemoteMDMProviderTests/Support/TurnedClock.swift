import Synchronization

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// A clock that stands until a task waits, which goes on at once.
final class TurnedClock: Sendable {
    private let state = Mutex((now: ContinuousClock.now, waits: [Duration]()))
    let draw: Double

    /// - Parameter draw: Always drawn.
    init(draw: Double = 0.5) { self.draw = draw }

    var waits: [Duration] { state.withLock(\.waits) }

    var retryPolicy: RetryPolicy {
        RetryPolicy(
            now: { self.state.withLock(\.now) },
            sleep: { duration in
                try Task.checkCancellation()
                self.state.withLock { state in
                    state.now += duration
                    state.waits.append(duration)
                }
            }, random: { self.draw })
    }
}

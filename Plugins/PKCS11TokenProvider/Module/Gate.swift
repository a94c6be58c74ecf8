import Glibc
import Synchronization

/// Lets many through at once, until somebody closes it to be alone.
final class Gate: Sendable {
    /// Those that are inside, and ``closed`` while none may enter.
    private let inside = Atomic(0)
    private static let closed = 1 << 62

    /// - Parameter wait: Waits for whoever has closed it.
    func pass<T, Failure: Error>(
        waiting wait: () -> Void, _ body: () throws(Failure) -> T
    ) throws(Failure) -> T {
        while inside.add(1, ordering: .acquiringAndReleasing).oldValue >= Self.closed {
            inside.subtract(1, ordering: .acquiringAndReleasing)
            wait()
        }
        defer { inside.subtract(1, ordering: .acquiringAndReleasing) }
        return try body()
    }

    /// Calls `body` when nobody is inside, and lets nobody in before its end. One at a time.
    ///
    /// - Returns: `nil` where somebody has stayed for longer than `patience`.
    func close<T, Failure: Error>(
        patience: Duration, _ body: () throws(Failure) -> T
    ) throws(Failure) -> T? {
        inside.add(Self.closed, ordering: .acquiringAndReleasing)
        defer { inside.subtract(Self.closed, ordering: .acquiringAndReleasing) }
        let deadline = ContinuousClock.now + patience
        while inside.load(ordering: .acquiring) != Self.closed {
            guard ContinuousClock.now < deadline else { return nil }
            usleep(1000)
        }
        return try body()
    }
}

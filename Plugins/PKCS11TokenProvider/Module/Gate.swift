import Glibc
import Synchronization

/// Lets many through at once, until somebody closes it to be alone, or shuts it for good.
final class Gate: Sendable {
    /// Those that are inside, and ``closed`` more for each that keeps it closed.
    private let inside = Atomic(0)
    private let isShut = Atomic(false)
    private static let closed = 1 << 60

    /// - Parameter wait: Waits for whoever has closed it.
    /// - Returns: `nil` where the gate is shut for good.
    func pass<T, Failure: Error>(
        waiting wait: () -> Void, _ body: () throws(Failure) -> T
    ) throws(Failure) -> T? {
        while inside.add(1, ordering: .acquiringAndReleasing).oldValue >= Self.closed {
            inside.subtract(1, ordering: .acquiringAndReleasing)
            if isShut.load(ordering: .acquiring) { return nil }
            wait()
        }
        defer { inside.subtract(1, ordering: .acquiringAndReleasing) }
        return try body()
    }

    /// Calls `body` when nobody is inside, and lets nobody in before its end. One at a time.
    ///
    /// - Returns: `nil` where somebody has stayed for longer than `patience`, and where the gate is shut.
    func close<T, Failure: Error>(
        patience: Duration, _ body: () throws(Failure) -> T
    ) throws(Failure) -> T? {
        inside.add(Self.closed, ordering: .acquiringAndReleasing)
        defer { inside.subtract(Self.closed, ordering: .acquiringAndReleasing) }
        guard isEmpty(by: .now + patience), !isShut.load(ordering: .acquiring) else { return nil }
        return try body()
    }

    /// Lets nobody in any more.
    func shut() {
        guard !isShut.exchange(true, ordering: .acquiringAndReleasing) else { return }
        inside.add(Self.closed, ordering: .acquiringAndReleasing)
    }

    /// Waits until nobody is inside.
    /// - Returns: Whether that was so before `deadline`.
    func isEmpty(by deadline: ContinuousClock.Instant) -> Bool {
        while inside.load(ordering: .acquiring) % Self.closed != 0 {
            guard ContinuousClock.now < deadline else { return false }
            usleep(1000)
        }
        return true
    }
}

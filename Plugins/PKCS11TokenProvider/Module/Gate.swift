import Glibc
import Synchronization

/// Lets many callers through at once. Can be closed for one caller to be alone, and shut for good.
final class Gate: Sendable {
    /// Those that are inside, and ``closed`` more for each that keeps it closed.
    private let inside = Atomic(0)
    private let isShut = Atomic(false)
    private static let closed = 1 << 60

    /// - Parameter wait: Waits for the caller that has closed it.
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

    /// Calls `body` when no other caller is inside, and lets none in before its end. One at a time.
    ///
    /// - Returns: `nil` if a caller has stayed inside for longer than `timeout`, or the gate is shut.
    func close<T, Failure: Error>(
        timeout: Duration, _ body: () throws(Failure) -> T
    ) throws(Failure) -> T? {
        inside.add(Self.closed, ordering: .acquiringAndReleasing)
        defer { inside.subtract(Self.closed, ordering: .acquiringAndReleasing) }
        guard isEmpty(by: .now + timeout), !isShut.load(ordering: .acquiring) else { return nil }
        return try body()
    }

    /// Lets no further caller in.
    func shut() {
        guard !isShut.exchange(true, ordering: .acquiringAndReleasing) else { return }
        inside.add(Self.closed, ordering: .acquiringAndReleasing)
    }

    /// Waits until no caller is inside.
    /// - Returns: Whether that was so before `deadline`.
    func isEmpty(by deadline: ContinuousClock.Instant) -> Bool {
        while inside.load(ordering: .acquiring) % Self.closed != 0 {
            guard ContinuousClock.now < deadline else { return false }
            usleep(1000)
        }
        return true
    }
}

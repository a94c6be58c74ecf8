import CertificateProviding
import Dispatch
import Synchronization

/// A value that one thread waits for and another one gives, once.
final class Answer<Value: Sendable>: Sendable {
    private let value = BlockingMutex<Value?>(nil)
    private let isGiven = DispatchSemaphore(value: 0)

    func give(_ new: Value) {
        value.withLock { $0 = new }
        isGiven.signal()
    }

    /// Blocks. One thread waits, and not again after it has got the value.
    func wait() -> Value {
        while true {
            isGiven.wait()
            if let value = value.withLock(\.self) { return value }
        }
    }

    /// - Returns: `nil` at the deadline.
    func wait(until deadline: ContinuousClock.Instant) -> Value? {
        guard isGiven.wait(timeout: DispatchTime(deadline)) == .success else { return nil }
        return value.withLock(\.self)
    }
}

/// Lets only the first of several threads act.
final class Latch: Sendable {
    private let isDone = Atomic(false)

    var hasHappened: Bool { isDone.load(ordering: .acquiring) }

    /// Whether no other call has returned true.
    func isFirst() -> Bool { !isDone.exchange(true, ordering: .acquiringAndReleasing) }
}

package import Dispatch

/// A value that one thread waits for and another one gives, once.
package final class BlockingAnswer<Value: Sendable>: Sendable {
    private let value = BlockingMutex<Value?>(nil)
    private let isGiven = DispatchSemaphore(value: 0)

    package init() {}

    package func give(_ new: Value) {
        value.withLock { $0 = new }
        isGiven.signal()
    }

    /// Blocks. One thread waits, and not again after it has got the value.
    package func wait() -> Value {
        while true {
            isGiven.wait()
            if let value = value.withLock(\.self) { return value }
        }
    }

    /// - Returns: `nil` at the deadline.
    package func wait(until deadline: ContinuousClock.Instant) -> Value? {
        guard isGiven.wait(timeout: DispatchTime(deadline)) == .success else { return nil }
        return value.withLock(\.self)
    }
}

extension DispatchTime {
    package init(_ instant: ContinuousClock.Instant) {
        let delay = max(.zero, instant - .now).components
        self = .now() + .nanoseconds(Int(delay.seconds * 1_000_000_000 + delay.attoseconds / 1_000_000_000))
    }
}

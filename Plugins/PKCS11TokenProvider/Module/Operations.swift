import CertificateProviding
import Dispatch
import Synchronization

/// Gate between operations of several calls (shared) and a restart of the module (exclusive), which would take away their
/// handles and login.
///
/// All signatures with the tokens of a module pass it, so they do without the lock unless it is closed.
final class Operations: Sendable {
    private struct State {
        /// A thread waits for the end of all, or is alone.
        var isPaused = false
        var isShut = false
        var waiting: [DispatchSemaphore] = []
    }

    private let state = BlockingMutex(State())
    /// How many are under way, and ``closed`` while none begins.
    private let count = Atomic(0)
    private static let closed = 1 << 32

    /// Calls `body` at once, or after a pause.
    ///
    /// - Returns: `nil` once ``shut()`` was called.
    func run<T, Failure: Error>(_ body: () throws(Failure) -> T) throws(Failure) -> T? {
        while count.add(1, ordering: .acquiringAndReleasing).oldValue >= Self.closed {
            leave()
            let isOpen = wait(until: .distantFuture) { $0.isShut ? false : $0.isPaused ? nil : true }
            guard isOpen == true else { return nil }
        }
        defer { leave() }
        return try body()
    }

    private func leave() {
        if count.subtract(1, ordering: .acquiringAndReleasing).newValue == Self.closed { change { _ in } }
    }

    /// Calls `body` when none is under way, and lets none begin before its end. One caller at a time.
    ///
    /// - Returns: `nil` if that has not come to pass by `deadline`, or after ``shut()``.
    func pause<T, Failure: Error>(
        by deadline: ContinuousClock.Instant, _ body: () throws(Failure) -> T
    ) throws(Failure) -> T? {
        let isAlone = wait(until: DispatchTime(deadline)) { [self] state -> Bool? in
            if state.isShut || state.isPaused { return state.isShut ? false : nil }
            state.isPaused = true
            count.bitwiseOr(Self.closed, ordering: .acquiringAndReleasing)
            return true
        }
        guard isAlone == true else { return nil }
        defer {
            change { [self] state in
                state.isPaused = false
                if !state.isShut { count.bitwiseAnd(~Self.closed, ordering: .acquiringAndReleasing) }
            }
        }
        guard isIdle(by: deadline) else { return nil }
        return try body()
    }

    /// Lets none begin any more.
    func shut() {
        change { [self] state in
            state.isShut = true
            count.bitwiseOr(Self.closed, ordering: .acquiringAndReleasing)
        }
    }

    /// Waits until none is under way, where none begins. Blocks.
    /// - Returns: Whether that was so before `deadline`.
    func isIdle(by deadline: ContinuousClock.Instant) -> Bool {
        wait(until: DispatchTime(deadline)) { [self] _ in
            count.load(ordering: .acquiring) == Self.closed ? true : nil
        } ?? false
    }

    /// Changes the state, and lets all look again that wait.
    private func change(_ body: (inout State) -> Void) {
        let waiting = state.withLock { state in
            defer { state.waiting = [] }
            body(&state)
            return state.waiting
        }
        waiting.forEach { $0.signal() }
    }

    /// Asks `turn` at once, after each change and at the deadline, until it returns a value. Blocks.
    private func wait(until deadline: DispatchTime, for turn: (inout State) -> Bool?) -> Bool? {
        let place = DispatchSemaphore(value: 0)
        var isInTime = true
        while true {
            let result = state.withLock { state in
                let result = turn(&state)
                state.waiting.removeAll { $0 === place }
                if result == nil, isInTime { state.waiting.append(place) }
                return result
            }
            guard result == nil, isInTime else { return result }
            isInTime = place.wait(timeout: deadline) == .success
        }
    }
}

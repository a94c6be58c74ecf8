import CertificateProviding
import Dispatch

/// Gate between operations of several calls (shared) and a restart of the module (exclusive), which would take away their
/// handles and login.
final class Operations: Sendable {
    private struct State {
        var count = 0
        /// A thread waits for the end of all, or is alone.
        var isPaused = false
        var isShut = false
        /// The threads that wait for the end of all.
        var idle: [DispatchSemaphore] = []
        /// The threads that go on after the pause.
        var waiting: [DispatchSemaphore] = []

        /// Adds a place among the threads that wait for the end of the pause.
        mutating func place() -> DispatchSemaphore {
            let place = DispatchSemaphore(value: 0)
            waiting.append(place)
            return place
        }
    }

    private let state = BlockingMutex(State())

    /// Calls `body` at once, or after a pause.
    ///
    /// - Returns: `nil` once ``shut()`` was called.
    func run<T, Failure: Error>(_ body: () throws(Failure) -> T) throws(Failure) -> T? {
        while true {
            let turn = state.withLock { state -> Turn in
                if state.isShut { return .never }
                guard state.isPaused else {
                    state.count += 1
                    return .now
                }
                return .after(state.place())
            }
            switch turn {
            case .never: return nil
            case .after(let place): place.wait()
            case .now:
                defer { leave() }
                return try body()
            }
        }
    }

    private func leave() {
        let idle = state.withLock { state in
            state.count -= 1
            return state.count == 0 ? state.idle : []
        }
        idle.forEach { $0.signal() }
    }

    /// Calls `body` when none is under way, and lets none begin before its end. One caller at a time.
    ///
    /// - Returns: `nil` if that has not come to pass by `deadline`, or after ``shut()``.
    func pause<T, Failure: Error>(
        by deadline: ContinuousClock.Instant, _ body: () throws(Failure) -> T
    ) throws(Failure) -> T? {
        while true {
            let turn = state.withLock { state -> Turn in
                if state.isShut { return .never }
                guard state.isPaused else {
                    state.isPaused = true
                    return .now
                }
                return .after(state.place())
            }
            switch turn {
            case .never: return nil
            case .after(let place):
                guard place.wait(timeout: DispatchTime(deadline)) == .success else { return nil }
            case .now:
                defer { resume() }
                guard isIdle(by: deadline) else { return nil }
                return try body()
            }
        }
    }

    private enum Turn {
        case now, never
        case after(DispatchSemaphore)
    }

    private func resume() {
        let waiting = state.withLock { state in
            defer { state.waiting = [] }
            state.isPaused = false
            return state.waiting
        }
        waiting.forEach { $0.signal() }
    }

    /// Lets none begin any more.
    func shut() {
        let waiting = state.withLock { state in
            defer { state.waiting = [] }
            state.isShut = true
            return state.waiting
        }
        waiting.forEach { $0.signal() }
    }

    /// Waits until none is under way. Blocks.
    /// - Returns: Whether that was so before `deadline`.
    func isIdle(by deadline: ContinuousClock.Instant) -> Bool {
        let place = DispatchSemaphore(value: 0)
        let isIdle = state.withLock { state in
            if state.count > 0 { state.idle.append(place) }
            return state.count == 0
        }
        if isIdle { return true }
        _ = place.wait(timeout: DispatchTime(deadline))
        return state.withLock { state in
            state.idle.removeAll { $0 === place }
            return state.count == 0
        }
    }
}

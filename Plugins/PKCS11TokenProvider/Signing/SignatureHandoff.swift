import CertificateProviding
import Glibc
import Synchronization

/// Where a caller meets the thread that signs for it.
///
/// A caller that is alone with a module that signs as fast as software does looks out for the result on its own thread:
/// being suspended and woken takes as long as such a signature. All others are suspended at once.
final class SignatureHandoff: Sendable {
    typealias Outcome = Result<[UInt8], CertificateProviderError>

    private enum State {
        case open
        case done(Outcome)
        case awaited(CheckedContinuation<Outcome, Never>)
    }

    private let state = Mutex(State.open)
    private let isDone = Atomic(false)

    func complete(_ outcome: Outcome) {
        let continuation = state.withLock { state -> CheckedContinuation<Outcome, Never>? in
            if case .awaited(let continuation) = state { return continuation }
            state = .done(outcome)
            return nil
        }
        if let continuation { return continuation.resume(returning: outcome) }
        isDone.store(true, ordering: .releasing)
    }

    /// Waits on this thread for as long as `duration`, and then suspended.
    func outcome(lookingOutFor duration: Duration) async -> Outcome {
        if duration > .zero {
            let end = ContinuousClock.now + duration
            // Any other thread that has something to do goes first.
            while !isDone.load(ordering: .acquiring) && ContinuousClock.now < end { sched_yield() }
        }
        return await withCheckedContinuation { continuation in
            let outcome = state.withLock { state -> Outcome? in
                if case .done(let outcome) = state { return outcome }
                state = .awaited(continuation)
                return nil
            }
            if let outcome { continuation.resume(returning: outcome) }
        }
    }
}

/// How long signatures take, and who waits for one.
final class SigningPace: Sendable {
    private let waiting = Atomic(0)
    /// Of the last one, in nanoseconds.
    private let last = Atomic<Int64>(.max)

    /// Longer than this, and no thread is kept: it is what an RSA signature in memory keeps one for.
    private static let longest: Int64 = 500_000
    private static let hasSeveralProcessors = sysconf(Int32(_SC_NPROCESSORS_ONLN)) > 1

    /// Begins to wait.
    /// - Returns: How long to look out for the result without being suspended.
    func begin() -> Duration {
        let isAlone = waiting.add(1, ordering: .relaxed).oldValue == 0
        let last = last.load(ordering: .relaxed)
        guard isAlone, Self.hasSeveralProcessors, last < Self.longest else { return .zero }
        return .nanoseconds(2 * last)
    }

    func end() { waiting.subtract(1, ordering: .relaxed) }

    func measure<T, Failure>(_ body: () throws(Failure) -> T) throws(Failure) -> T {
        let start = ContinuousClock.now
        defer {
            let time = (ContinuousClock.now - start).components
            last.store(
                time.seconds > 0 ? .max : time.attoseconds / 1_000_000_000, ordering: .relaxed)
        }
        return try body()
    }
}

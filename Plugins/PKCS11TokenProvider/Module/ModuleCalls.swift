import CertificateProviding
import Dispatch
import Synchronization

/// Runs calls into vendors' libraries on threads of their own, and stops waiting for them at a deadline.
///
/// A C call cannot be interrupted: one that hangs keeps its thread, and its caller goes on without it. When all threads
/// hang, further callers wait for their own deadline and no longer.
final class ModuleCalls: Sendable {
    let timeout: Duration
    private let executor: BlockingExecutor
    private let waiting = Mutex(Waiting())

    private struct Waiting {
        var calls: [UInt64: Call] = [:]
        var next: UInt64 = 0
        var isWatched = false

        struct Call {
            let deadline: ContinuousClock.Instant
            let giveUp: @Sendable () -> Void
        }
    }

    init(timeout: Duration, threads: Int = SessionPool.maximum) {
        self.timeout = timeout
        self.executor = .threads(maximum: threads)
    }

    /// Runs `work` on a thread that may block, and suspends the caller meanwhile.
    ///
    /// - Parameter purpose: What is going on, for the message, such as "signing".
    /// - Parameter undo: Gets what came of work that ended after its caller had given up, on the same thread.
    /// - Throws: What `work` throws, or `timedOut`.
    func run<T: Sendable>(
        _ purpose: String, undo: (@Sendable (T) -> Void)? = nil,
        _ work: @escaping @Sendable () throws(CertificateProviderError) -> T
    ) async throws(CertificateProviderError) -> T {
        let result = await withCheckedContinuation { (continuation: CheckedContinuation<Outcome<T>, Never>) in
            start(purpose, work, undo: undo) { continuation.resume(returning: $0) }
        }
        return try result.get()
    }

    /// Runs `work` on another thread and blocks until it is done, or until the deadline.
    func wait<T: Sendable>(
        _ purpose: String, _ work: @escaping @Sendable () throws(CertificateProviderError) -> T
    ) throws(CertificateProviderError) -> T {
        let end = DispatchSemaphore(value: 0)
        let outcome = Mutex<Outcome<T>?>(nil)
        start(purpose, work) { result in
            outcome.withLock { $0 = result }
            end.signal()
        }
        end.wait()
        guard let result = outcome.withLock({ $0 }) else { throw timedOut(purpose) }
        return try result.get()
    }

    typealias Outcome<T> = Result<T, CertificateProviderError>

    /// Calls `completion` once: with what came of `work`, or at the deadline.
    private func start<T: Sendable>(
        _ purpose: String, _ work: @escaping @Sendable () throws(CertificateProviderError) -> T,
        undo: (@Sendable (T) -> Void)? = nil, completion: @escaping @Sendable (Outcome<T>) -> Void
    ) {
        let number = register { [self] in completion(.failure(timedOut(purpose))) }
        executor.submit { [self] in
            // Its caller has given up while it waited for a thread.
            guard isAwaited(number) else { return }
            let outcome = Outcome { () throws(CertificateProviderError) -> T in try work() }
            if take(number) != nil {
                completion(outcome)
            } else if case .success(let late) = outcome {
                undo?(late)
            }
        }
    }

    private func isAwaited(_ number: UInt64) -> Bool { waiting.withLock { $0.calls[number] != nil } }

    private func take(_ number: UInt64) -> Waiting.Call? { waiting.withLock { $0.calls.removeValue(forKey: number) } }

    private func register(_ giveUp: @escaping @Sendable () -> Void) -> UInt64 {
        let deadline = ContinuousClock.now + timeout
        let (number, startsWatch) = waiting.withLock { waiting in
            let number = waiting.next
            waiting.next += 1
            waiting.calls[number] = .init(deadline: deadline, giveUp: giveUp)
            defer { waiting.isWatched = true }
            return (number, !waiting.isWatched)
        }
        if startsWatch { watch(until: deadline) }
        return number
    }

    /// Looks after the calls at `instant`. One timer for all of them: one for each would cost as much as a signature.
    private func watch(until instant: ContinuousClock.Instant) {
        let delay = max(.zero, instant - .now)
        let nanoseconds = delay.components.seconds * 1_000_000_000 + delay.components.attoseconds / 1_000_000_000
        DispatchQueue.global().asyncAfter(deadline: .now() + .nanoseconds(Int(nanoseconds))) { [weak self] in
            self?.giveUpOverdue()
        }
    }

    private func giveUpOverdue() {
        let now = ContinuousClock.now
        let (overdue, next) = waiting.withLock { waiting in
            let overdue = waiting.calls.filter { $0.value.deadline <= now }
            for number in overdue.keys { waiting.calls[number] = nil }
            let next = waiting.calls.values.map(\.deadline).min()
            waiting.isWatched = next != nil
            return (overdue.values.map(\.giveUp), next)
        }
        overdue.forEach { $0() }
        if let next { watch(until: next) }
    }

    private func timedOut(_ purpose: String) -> CertificateProviderError {
        CertificateProviderError(
            .timedOut,
            "The PKCS#11 module did not answer within \(timeout) (\(purpose)); see whether its device or service hangs."
        )
    }
}

import CertificateProviding
import Dispatch
import Glibc
import Synchronization

/// Runs calls into vendors' libraries on threads of their own, and stops waiting for them at a deadline.
///
/// A C call cannot be interrupted: one that hangs occupies its thread, and its caller goes on without it. When all threads
/// hang, further callers wait for their own deadline and no longer. Each module has threads of its own, so that one that hangs
/// does not block another.
final class ModuleCalls: Sendable {
    let timeout: Duration
    private let process = getpid()
    private let executor: BlockingExecutor
    /// A queue of its own: the common queues share their threads with tasks, all of which may be waiting here.
    private let timer = DispatchQueue(label: "certprov.module-calls")
    private let waiting = BlockingMutex(Waiting())
    /// How many calls no thread has taken yet.
    private let queued = Atomic(0)
    /// More than this many are refused: where every thread hangs, they would only fill the memory.
    private static let maximumQueued = 10_000

    private struct Waiting {
        var calls: [UInt64: Call] = [:]
        var last: UInt64 = 0
        /// When the timer goes off that looks after them; others may be on their way, and do nothing.
        var watch: ContinuousClock.Instant?
    }

    /// A call whose caller waits. The first who removes it tells the caller how it went.
    private struct Call {
        var deadline: ContinuousClock.Instant
        /// By how much the deadline may still move.
        var reserve: Duration
        var turn: RecordLease?
        let tellTimeout: @Sendable () -> Void
    }

    /// The call that a thread's work belongs to.
    private struct Work: Sendable {
        let calls: ModuleCalls
        let number: UInt64
        /// The earliest.
        let deadline: ContinuousClock.Instant

        /// - Returns: `nil` where the caller has given up.
        func withCall<T: Sendable>(_ body: (inout Call) -> T) -> T? {
            calls.waiting.withLock { waiting in
                guard var call = waiting.calls[number] else { return nil }
                defer { waiting.calls[number] = call }
                return body(&call)
            }
        }
    }

    /// The longest wait for other processes' turns that is not charged to the caller, as a multiple of the timeout and in all: ten
    /// programs at one card wait for each other longer than for the card.
    private static let extraTimeouts = 9
    private static let longestTurns = Duration.seconds(120)

    @TaskLocal private static var current: Work?

    /// When the caller of the work that this thread does gives up; `nil` where there is none.
    static var deadline: ContinuousClock.Instant? {
        current.map { $0.withCall(\.deadline) ?? $0.deadline }
    }

    /// Lets the caller of the work that this thread does wait longer: for other processes' turns. Up to nine times the timeout, and two
    /// minutes.
    static func postponeDeadline(by duration: Duration) {
        _ = current?.withCall { call in
            let moved = min(duration, call.reserve)
            call.deadline += moved
            call.reserve -= moved
        }
    }

    /// Whether the work that this thread does has a turn.
    static var hasTurn: Bool { current?.withCall { $0.turn != nil } ?? false }

    /// Keeps a turn until the work that this thread does ends, or its caller gives up: a call that hangs stops no other process.
    static func keep(_ turn: RecordLease) { _ = current?.withCall { $0.turn = turn } }

    init(timeout: Duration, threads: Int = TokenConnection.maximumSessions) {
        self.timeout = timeout
        self.executor = .threads(maximum: threads)
    }

    /// Runs `work` on a thread that may block, and suspends the caller until it ends.
    ///
    /// - Parameters:
    ///   - purpose: What is going on, for the message, such as "signing".
    ///   - minimum: How long the work may take, however short the timeout is.
    ///   - undo: Gets the result of work that ended after its caller had given up, on the same thread.
    /// - Throws: What `work` throws, or `timedOut`.
    func run<T: Sendable>(
        _ purpose: String, atLeast minimum: Duration = .zero, undo: (@Sendable (T) -> Void)? = nil,
        _ work: @escaping @Sendable () throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        let result = await withCheckedContinuation { (continuation: CheckedContinuation<Outcome<T>, Never>) in
            start(purpose, atLeast: minimum, work, undo: undo) { continuation.resume(returning: $0) }
        }
        return try result.get()
    }

    /// Runs `work` on another thread and blocks until it is done, or until the deadline.
    func wait<T: Sendable>(
        _ purpose: String, _ work: @escaping @Sendable () throws(ProviderError) -> T
    ) throws(ProviderError) -> T {
        let answer = Answer<Outcome<T>>()
        start(purpose, work) { answer.give($0) }
        return try answer.wait().get()
    }

    typealias Outcome<T> = Result<T, ProviderError>

    /// Runs `work` on another thread, and calls `completion` there once: with its result, or at the deadline.
    func start<T: Sendable>(
        _ purpose: String, atLeast minimum: Duration = .zero,
        _ work: @escaping @Sendable () throws(ProviderError) -> T,
        undo: (@Sendable (T) -> Void)? = nil, completion: @escaping @Sendable (Outcome<T>) -> Void
    ) {
        // The threads belong to the parent process: here, no thread would do the work or end the wait.
        guard getpid() == process else { return completion(.failure(forked())) }
        let timeout = max(timeout, minimum)
        let hasGivenUp = Latch()
        let call = Call(
            deadline: .now + timeout, reserve: min(timeout * Self.extraTimeouts, Self.longestTurns),
            tellTimeout: {
                _ = hasGivenUp.isFirst()
                completion(.failure(Self.timedOut(purpose, after: timeout)))
            })
        guard queued.add(1, ordering: .relaxed).oldValue < Self.maximumQueued else {
            queued.subtract(1, ordering: .relaxed)
            return completion(
                .failure(
                    ProviderError(
                        .unavailable,
                        "The PKCS#11 module does not answer, and \(Self.maximumQueued) calls are already waiting for "
                            + "it; check whether its device or service hangs.")
                ))
        }
        let number = watch(call)
        executor.submit { [self] in
            queued.subtract(1, ordering: .relaxed)
            // Its caller has given up while it waited for a thread.
            guard !hasGivenUp.hasHappened else { return }
            let outcome = Self.$current.withValue(Work(calls: self, number: number, deadline: call.deadline)) {
                Outcome { () throws(ProviderError) -> T in try work() }
            }
            // The turn ends before the caller goes on.
            let deadline = waiting.withLock { $0.calls.removeValue(forKey: number) }?.deadline
            switch outcome {
            case .success(let value): if deadline == nil { undo?(value) } else { completion(outcome) }
            case .failure:
                guard let deadline else { return }
                // Work that ends with its time does so for want of time.
                if deadline <= .now { call.tellTimeout() } else { completion(outcome) }
            }
        }
    }

    /// - Returns: The number of the call.
    private func watch(_ call: Call) -> UInt64 {
        let (number, startsWatch) = waiting.withLock { waiting in
            waiting.last += 1
            waiting.calls[waiting.last] = call
            if let watch = waiting.watch, watch <= call.deadline { return (waiting.last, false) }
            waiting.watch = call.deadline
            return (waiting.last, true)
        }
        if startsWatch { watch(until: call.deadline) }
        return number
    }

    /// Looks after the calls at `instant`. One timer for all of them: one for each would cost as much as a signature.
    private func watch(until instant: ContinuousClock.Instant) {
        timer.asyncAfter(deadline: DispatchTime(instant)) { [weak self] in self?.giveUpOverdue(instant) }
    }

    private func giveUpOverdue(_ instant: ContinuousClock.Instant) {
        let now = ContinuousClock.now
        var (overdue, next) = waiting.withLock { waiting -> ([UInt64: Call], ContinuousClock.Instant?) in
            guard waiting.watch == instant else { return ([:], nil) }
            let overdue = waiting.calls.filter { $0.value.deadline <= now }
            for number in overdue.keys { waiting.calls[number] = nil }
            let next = waiting.calls.values.map(\.deadline).min()
            waiting.watch = next
            return (overdue, next)
        }
        let tellTimeouts = overdue.values.map(\.tellTimeout)
        // The turns end before the callers go on.
        overdue = [:]
        tellTimeouts.forEach { $0() }
        if let next { watch(until: next) }
    }

    private func forked() -> ProviderError {
        ProviderError(
            .operationNotAllowed,
            "The PKCS#11 module cannot be used in a forked process, which has neither the sessions nor the threads of "
                + "its parent; sign in the parent, or execute a program with its own provider.")
    }

    private static func timedOut(_ purpose: String, after timeout: Duration) -> ProviderError {
        ProviderError(
            .timedOut,
            "The PKCS#11 module did not answer within \(timeout) (\(purpose)); check whether its device or service "
                + "hangs, or raise 'timeout'.")
    }
}

extension DispatchTime {
    init(_ instant: ContinuousClock.Instant) {
        let delay = max(.zero, instant - .now).components
        self = .now() + .nanoseconds(Int(delay.seconds * 1_000_000_000 + delay.attoseconds / 1_000_000_000))
    }
}

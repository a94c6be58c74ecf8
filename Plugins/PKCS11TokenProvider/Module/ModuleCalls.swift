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
        /// Calls that are over are removed when there are too many of them: a search at the end of each call would cost more.
        var calls: [Call] = []
        var maximum = 64
        /// When the timer goes off that looks after them; others may be on their way, and do nothing.
        var watch: ContinuousClock.Instant?

        mutating func append(_ call: Call) {
            if calls.count >= maximum {
                calls.removeAll { $0.end.hasHappened }
                maximum = max(64, 2 * calls.count)
            }
            calls.append(call)
        }
    }

    /// A call whose caller waits.
    private final class Call: Sendable {
        private struct State {
            var deadline: ContinuousClock.Instant
            /// By how much the deadline may still move.
            var reserve: Duration
            var turn: RecordLease?
        }
        private let state: BlockingMutex<State>
        private let tellTimeout: @Sendable () -> Void
        /// The first who ends it tells the caller how it went.
        let end = Latch()

        init(timeout: Duration, tellTimeout: @escaping @Sendable () -> Void) {
            let reserve = min(timeout * ModuleCalls.extraTimeouts, ModuleCalls.longestTurns)
            self.state = BlockingMutex(State(deadline: .now + timeout, reserve: reserve))
            self.tellTimeout = tellTimeout
        }

        var deadline: ContinuousClock.Instant { state.withLock(\.deadline) }
        var hasTurn: Bool { state.withLock { $0.turn != nil } }

        func postpone(by duration: Duration) {
            state.withLock { state in
                let moved = min(duration, state.reserve)
                state.deadline += moved
                state.reserve -= moved
            }
        }

        func keep(_ turn: RecordLease) { state.withLock { $0.turn = turn } }

        func leaveTurn() { state.withLock { $0.turn = nil } }

        func giveUp() {
            leaveTurn()
            tellTimeout()
        }
    }

    /// The longest wait for other processes' turns that is not charged to the caller, as a multiple of the timeout and in all: ten
    /// programs at one card wait for each other longer than for the card.
    private static let extraTimeouts = 9
    private static let longestTurns = Duration.seconds(120)

    /// The call that this thread's work belongs to.
    @TaskLocal private static var current: Call?

    /// When the caller of the work that this thread does gives up; `nil` where there is none.
    static var deadline: ContinuousClock.Instant? { current?.deadline }

    /// Lets the caller of the work that this thread does wait longer: for other processes' turns. Up to nine times the timeout, and two
    /// minutes.
    static func postponeDeadline(by duration: Duration) { current?.postpone(by: duration) }

    /// Whether the work that this thread does has a turn.
    static var hasTurn: Bool { current?.hasTurn ?? false }

    /// Keeps a turn until the work that this thread does ends, or its caller gives up: a call that hangs stops no other process.
    static func keep(_ turn: RecordLease) { current?.keep(turn) }

    init(timeout: Duration, threads: Int = SessionPool.maximum) {
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
        let call = Call(timeout: timeout) {
            completion(.failure(Self.timedOut(purpose, after: timeout)))
        }
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
        watch(call)
        executor.submit { [self] in
            queued.subtract(1, ordering: .relaxed)
            // Its caller has given up while it waited for a thread.
            guard !call.end.hasHappened else { return }
            let outcome = Self.$current.withValue(call) {
                Outcome { () throws(ProviderError) -> T in try work() }
            }
            call.leaveTurn()
            switch outcome {
            case .success(let value): if call.end.isFirst() { completion(outcome) } else { undo?(value) }
            case .failure:
                guard call.end.isFirst() else { return }
                // Work that ends with its time does so for want of time.
                if call.deadline <= .now { call.giveUp() } else { completion(outcome) }
            }
        }
    }

    private func watch(_ call: Call) {
        let startsWatch = waiting.withLock { waiting in
            waiting.append(call)
            if let watch = waiting.watch, watch <= call.deadline { return false }
            waiting.watch = call.deadline
            return true
        }
        if startsWatch { watch(until: call.deadline) }
    }

    /// Looks after the calls at `instant`. One timer for all of them: one for each would cost as much as a signature.
    private func watch(until instant: ContinuousClock.Instant) {
        timer.asyncAfter(deadline: DispatchTime(instant)) { [weak self] in self?.giveUpOverdue(instant) }
    }

    private func giveUpOverdue(_ instant: ContinuousClock.Instant) {
        let now = ContinuousClock.now
        let (overdue, next) = waiting.withLock { waiting -> ([Call], ContinuousClock.Instant?) in
            guard waiting.watch == instant else { return ([], nil) }
            waiting.calls.removeAll { $0.end.hasHappened }
            let overdue = waiting.calls.filter { $0.deadline <= now }
            waiting.calls.removeAll { $0.deadline <= now }
            let next = waiting.calls.map(\.deadline).min()
            waiting.watch = next
            return (overdue, next)
        }
        for call in overdue where call.end.isFirst() { call.giveUp() }
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

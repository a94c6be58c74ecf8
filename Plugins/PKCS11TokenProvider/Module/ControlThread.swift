import CertificateProviding
import Dispatch

/// The one thread that starts and ends a module, looks at its slots, opens and closes sessions, and logs in and out.
///
/// So these exclude each other without a lock: SoftHSM rewrites a token at each login and does not find it meanwhile,
/// and some modules give the same handle to two threads that open a session at once.
///
/// A job only makes calls into the module. It waits for no worker, so that a worker may wait for it in the middle of an
/// operation.
final class ControlThread: Sendable {
    private let thread = BlockingExecutor.threads(maximum: 1)
    /// The one that this thread is, if it is one.
    @TaskLocal private static var current: ControlThread?

    /// Runs a job later.
    func submit(_ job: @escaping @Sendable () -> Void) { thread.submit { Self.$current.withValue(self) { job() } } }

    /// Runs a job and waits for its end, however long that takes: a C call cannot be interrupted, and a login that was
    /// made must not be reported as one that was not.
    ///
    /// - Parameter deadline: When to give up if the job has not begun, since another one hangs.
    /// - Returns: `nil` if it was not run.
    func run<T: Sendable, Failure: Error>(
        by deadline: ContinuousClock.Instant?, _ job: @escaping @Sendable () throws(Failure) -> T
    ) throws(Failure) -> T? {
        if Self.current === self { return try job() }
        let call = Call<T, Failure>()
        submit {
            guard call.begin() else { return }
            call.end(with: Result { () throws(Failure) in try job() })
        }
        return try call.wait(until: deadline)?.get()
    }

    private final class Call<T: Sendable, Failure: Error>: Sendable {
        private enum State {
            case queued, begun, abandoned
            case ended(Result<T, Failure>)
        }

        private let state = BlockingMutex(State.queued)
        private let hasEnded = DispatchSemaphore(value: 0)

        /// - Returns: Whether its caller still waits.
        func begin() -> Bool {
            state.withLock { state in
                guard case .queued = state else { return false }
                state = .begun
                return true
            }
        }

        func end(with result: Result<T, Failure>) {
            state.withLock { $0 = .ended(result) }
            hasEnded.signal()
        }

        func wait(until deadline: ContinuousClock.Instant?) -> Result<T, Failure>? {
            if let deadline, hasEnded.wait(timeout: DispatchTime(deadline)) == .timedOut {
                let isAbandoned = state.withLock { state in
                    guard case .queued = state else { return false }
                    state = .abandoned
                    return true
                }
                if isAbandoned { return nil }
                hasEnded.wait()
            } else if deadline == nil {
                hasEnded.wait()
            }
            return state.withLock { if case .ended(let result) = $0 { result } else { nil } }
        }
    }
}

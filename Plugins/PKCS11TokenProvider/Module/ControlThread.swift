import CertificateProviding

/// The one thread that starts and ends a module, looks at its slots, opens and closes sessions, and logs in and out.
///
/// So these exclude each other without a lock. SoftHSM rewrites a token at each login and does not find it until that is done,
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
        let (answer, hasBegun) = (Answer<Result<T, Failure>>(), Latch())
        submit {
            // Its caller still waits.
            guard hasBegun.isFirst() else { return }
            answer.give(Result { () throws(Failure) in try job() })
        }
        if let deadline {
            if let result = answer.wait(until: deadline) { return try result.get() }
            if hasBegun.isFirst() { return nil }
        }
        return try answer.wait().get()
    }
}

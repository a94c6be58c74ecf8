/// Runs calls that block (tokens, key derivation, disk flushes) outside the cooperative pool and event loops.
public struct BlockingExecutor: Sendable {
    /// Runs a job once, now or later, on a thread that may block.
    public let submit: @Sendable (@escaping @Sendable () -> Void) -> Void

    /// Creates an executor.
    ///
    /// - Parameter submit: Runs the given job once, now or later, on a thread that may block.
    public init(submit: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) {
        self.submit = submit
    }

    /// Creates an executor with threads of its own, which are started on demand and end when idle.
    ///
    /// - Parameter maximum: The maximum number of concurrent calls; further calls wait.
    public static func threads(maximum: Int = 16) -> BlockingExecutor {
        let threads = WorkerThreads(maximum: max(1, maximum))
        return BlockingExecutor { job in threads.submit(job) }
    }

    /// Runs `work` and returns its result. The calling task is suspended and cannot be cancelled until it ends, since a
    /// C call cannot be interrupted.
    ///
    /// - Throws: The error that `work` throws, and no other.
    public func run<T: Sendable>(
        _ work: @escaping @Sendable () throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        let result = await withCheckedContinuation { continuation in
            submit {
                // Handed over whole: an object that the thread held for a moment longer, such as a lease, would block others
                // for that long.
                continuation.resume(returning: Result { () throws(ProviderError) -> T in try work() })
            }
        }
        return try result.get()
    }
}

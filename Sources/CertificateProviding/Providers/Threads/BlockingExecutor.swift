/// Runs calls that block (tokens, key derivation, disk flushes) away from the cooperative pool and from event loops.
public struct BlockingExecutor: Sendable {
    /// Runs a job once, at any time, on a thread that may block.
    public let submit: @Sendable (@escaping @Sendable () -> Void) -> Void

    /// - Parameter submit: Runs the given job once, at any time, on a thread that may block.
    public init(submit: @escaping @Sendable (@escaping @Sendable () -> Void) -> Void) {
        self.submit = submit
    }

    /// An executor on threads of its own, which come and go with the work.
    ///
    /// - Parameter maximum: How many calls run at the same time; further ones wait for their turn.
    public static func threads(maximum: Int = 16) -> BlockingExecutor {
        let threads = WorkerThreads(maximum: max(1, maximum))
        return BlockingExecutor { job in threads.submit(job) }
    }

    /// Runs `work` and returns what it returns. The calling task is suspended meanwhile, and not cancellable: a C call
    /// cannot be interrupted.
    public func run<T: Sendable>(
        _ work: @escaping @Sendable () throws(CertificateProviderError) -> T
    ) async throws(CertificateProviderError) -> T {
        let result = await withCheckedContinuation { continuation in
            submit {
                let result = Result { () throws(CertificateProviderError) -> T in try work() }
                continuation.resume(returning: result)
            }
        }
        return try result.get()
    }
}

import CertificateProviding
import Dispatch
import Glibc

/// Closes sessions, finalises and unloads modules after their last use.
///
/// The last reference to a key or a provider may go on an event loop, and each of these calls may block. So they run on
/// threads of their own, without a caller that waits. Only the end of the process waits (``ModuleEnd``), and runs no
/// more of them: a library that is torn down in the middle of a call may crash.
final class DeferredCleanup: Sendable {
    private let executor = BlockingExecutor.threads(maximum: 4)
    private let process = getpid()

    /// The work for all libraries of the process.
    private static let pending = DispatchGroup()

    /// Runs `work` at any time. Not in a child of this process: threads and modules are its parent's.
    func run(_ work: @escaping @Sendable () -> Void) {
        guard getpid() == process, ModuleRegistry.unlessEnding({ Self.pending.enter() }) else { return }
        let job = Job(work)
        executor.submit {
            job.run()
            Self.pending.leave()
        }
    }

    /// Waits for the work that is running, after ``ModuleRegistry/beginEnd()``.
    /// - Returns: Whether it ended in time.
    static func end(by deadline: DispatchTime) -> Bool { pending.wait(timeout: deadline) == .success }

    /// Lets go of what it holds before it counts as done: that may be the last to hold something else.
    private final class Job: @unchecked Sendable {
        // Unchecked: one thread runs it, once.
        private var work: (@Sendable () -> Void)?

        init(_ work: @escaping @Sendable () -> Void) { self.work = work }

        func run() {
            work?()
            work = nil
        }
    }
}

import CertificateProviding
import Dispatch
import Glibc
import Synchronization

/// Gives back to modules what nobody uses any more: closes sessions, finalises, unloads.
///
/// The last reference to a key or a provider goes wherever it goes, on an event loop perhaps, and a vendor's library
/// may block in all of that. So it has threads of its own, and nobody waits for it. Only the end of the process does
/// (``ModuleEnd``), after which nothing more is given back: a library that is torn down in the middle of a call may
/// crash.
final class Releases: Sendable {
    private let executor = BlockingExecutor.threads(maximum: 4)
    private let process = getpid()

    /// Of all libraries of the process.
    private static let pending = DispatchGroup()
    private static let isAtExit = Mutex(false)

    /// Runs `work` at any time. Not in a child of this process: threads and modules are its parent's.
    func run(_ work: @escaping @Sendable () -> Void) {
        guard getpid() == process else { return }
        let isTooLate = Self.isAtExit.withLock { isAtExit in
            if !isAtExit { Self.pending.enter() }
            return isAtExit
        }
        guard !isTooLate else { return }
        let job = Job(work)
        executor.submit {
            job.run()
            Self.pending.leave()
        }
    }

    /// Gives nothing back any more, and waits for what is being given back.
    /// - Returns: Whether that came to its end in time.
    static func end(by deadline: DispatchTime) -> Bool {
        isAtExit.withLock { $0 = true }
        return pending.wait(timeout: deadline) == .success
    }

    /// Lets go of what it holds before it counts as done: that may be the last to hold something else.
    private final class Job: Sendable {
        private let work: Mutex<(@Sendable () -> Void)?>

        init(_ work: @escaping @Sendable () -> Void) { self.work = Mutex(work) }

        func run() {
            work.withLock { work in
                work?()
                work = nil
            }
        }
    }
}

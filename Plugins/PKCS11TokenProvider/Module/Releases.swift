import CertificateProviding
import Dispatch
import Glibc
import Synchronization

/// Gives back to modules what nobody uses any more: closes sessions, finalises, unloads.
///
/// The last reference to a key or a provider goes wherever it goes, on an event loop perhaps, and a vendor's library
/// may block in all of that. So it has threads of its own, and nobody waits for it. Only the end of the process does,
/// after which nothing more is given back: a library that is torn down in the middle of a call may crash.
final class Releases: Sendable {
    private let executor = BlockingExecutor.threads(maximum: 4)
    private let pending = DispatchGroup()
    private let process = getpid()
    private let isAtExit = Mutex(false)

    /// Runs `work` at any time. Not in a child of this process: threads and modules are its parent's.
    func run(_ work: @escaping @Sendable () -> Void) {
        guard getpid() == process else { return }
        let isTooLate = isAtExit.withLock { isAtExit in
            if !isAtExit { pending.enter() }
            return isAtExit
        }
        guard !isTooLate else { return }
        let job = Job(work)
        executor.submit { [pending] in
            job.run()
            pending.leave()
        }
    }

    /// Lets the process wait at its end for what is being given back then, for a while. Called when the module has been
    /// started, and its libraries have registered what they do at the end: what is registered last is done first.
    func awaitAtExit() {
        // Kept to the end of the process.
        on_exit(
            { _, releases in
                guard let releases else { return }
                Unmanaged<Releases>.fromOpaque(releases).takeUnretainedValue().wait()
            }, Unmanaged.passRetained(self).toOpaque())
    }

    private func wait() {
        guard getpid() == process else { return }
        isAtExit.withLock { $0 = true }
        _ = pending.wait(timeout: .now() + 2)
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

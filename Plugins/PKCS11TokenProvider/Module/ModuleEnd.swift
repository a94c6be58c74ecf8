import CP11Kit
import CertificateProviding
import Dispatch
import Glibc
import Synchronization

/// The orderly end of all modules of this process, before it exits.
///
/// A TPM without a resource manager keeps sessions that were not closed, and has three. And a thread that is inside a
/// library when the process exits crashes: the exit handlers of the library, or of the OpenSSL that it uses, take apart
/// what that thread is using.
///
/// So an exit handler of this room comes before those: it lets no call begin, waits for those in progress, logs out, closes and
/// finalizes. If a call does not end, the process exits without the other handlers.
enum ModuleEnd {
    /// How long it takes at most.
    static let limit = Duration.seconds(2)

    /// Ends all modules at its first use, for which others wait.
    private static let outcome = endAll()
    private static let hasBegun = Atomic(false)

    /// Whether the process is ending, so that no PIN is sent: its answer might come too late to be written down.
    static var isUnderWay: Bool { hasBegun.load(ordering: .acquiring) }

    /// Ends all modules, once. Blocks for at most ``limit``. A second caller waits for the same end.
    ///
    /// - Returns: Whether all threads have left all libraries.
    @discardableResult
    static func run() -> Bool { outcome }

    private static func endAll() -> Bool {
        let deadline = ContinuousClock.now + limit
        hasBegun.store(true, ordering: .releasing)
        let places = ModuleRegistry.beginEnd()
        // A thread for each, since any of them may hang.
        let executor = BlockingExecutor.threads(maximum: max(1, places.count))
        let ends = places.map { place in
            let end = Answer<Bool>()
            executor.submit { end.give(place.end(by: deadline - reserve)) }
            return end
        }
        let hasReleased = DeferredCleanup.end(by: DispatchTime(deadline))
        return ends.allSatisfy { $0.wait(until: deadline) ?? false } && hasReleased
    }

    /// The part of the time that is reserved for logging out, closing and finalizing.
    private static let reserve = Duration.milliseconds(100)

    /// Lets the process end its modules when it exits. Exit handlers run in reverse order, so call this whenever a library may
    /// have registered one.
    static func registerAtExit() {
        on_exit(
            { status, process in
                // A child of this process has none of its threads.
                guard UInt(bitPattern: process) == UInt(getpid()) else { return }
                guard !ModuleEnd.run() else { return }
                certprov_flush_standard_streams()
                _exit(status)
            }, UnsafeMutableRawPointer(bitPattern: UInt(getpid())))
    }
}

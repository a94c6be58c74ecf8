package import CertificateProviding
import Glibc
import IdentityStore

/// The lock of a question at the terminal or in a pinentry: one at a time, over all processes of this user. Released with the object,
/// or with its process.
package final class TerminalLock: Sendable {
    private static let name = "asking.lock"
    private static let pause = Duration.milliseconds(100)
    private let descriptor: Int32

    private init(_ descriptor: Int32) { self.descriptor = descriptor }

    deinit {
        // A process that another thread has forked has the same open file until it runs its program.
        flock(descriptor, LOCK_UN)
        close(descriptor)
    }

    /// Waits for the lock. Suspends between two attempts: no thread waits.
    ///
    /// - Parameters:
    ///   - directory: That of the journal.
    ///   - time: How long to wait.
    /// - Returns: `nil` if the time is up.
    /// - Throws: `userCancelled` if the task was cancelled, `storeWriteFailed` if the lock cannot be opened.
    package static func acquire(
        in directory: String, within time: Duration
    ) async throws(ProviderError) -> TerminalLock? {
        let end = ContinuousClock.now + time
        let lock: TerminalLock
        do throws(SafeDirectory.Refusal) {
            let directory = try SafeDirectory.create(directory, .system)
            let descriptor = FileSystem.system.create(directory.descriptor, name, O_RDWR)
            guard descriptor >= 0 else { throw directory.failure("\(directory.path)/\(name) cannot be opened") }
            lock = TerminalLock(descriptor)
        } catch {
            throw error.error(.storeWriteFailed, "No question can be asked: \(error.reason.withVisibleControls).")
        }
        while flock(lock.descriptor, LOCK_EX | LOCK_NB) != 0 {
            guard errno == EWOULDBLOCK || errno == EINTR else {
                throw ProviderError(
                    .storeWriteFailed, "No question can be asked: \(name) cannot be locked: \(errorText(errno)).")
            }
            let left = end - .now
            guard left > .zero else { return nil }
            do { try await Task.sleep(for: min(left, pause)) } catch {
                throw ProviderError(.userCancelled, "The wait for the screen was cancelled.")
            }
        }
        return lock
    }
}

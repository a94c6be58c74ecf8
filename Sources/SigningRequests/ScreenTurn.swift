package import CertificateProviding
import Glibc
import IdentityStore

/// The right to have a question on the screen: one at a time, over all processes of this user. It ends with the object, or with
/// its process.
package final class ScreenTurn: Sendable {
    private static let name = "asking.lock"
    private static let pause = Duration.milliseconds(100)
    private let descriptor: Int32

    private init(_ descriptor: Int32) { self.descriptor = descriptor }

    deinit {
        // A process that another thread has forked has the same open file until it runs its program.
        flock(descriptor, LOCK_UN)
        close(descriptor)
    }

    /// Waits for the turn. Suspends between two looks at the lock: no thread waits.
    ///
    /// - Parameters:
    ///   - directory: That of the journal.
    ///   - time: How long to wait.
    /// - Returns: `nil` if the time is up.
    /// - Throws: `userCancelled` if the task was cancelled, `storeWriteFailed` if the lock cannot be opened.
    package static func take(
        in directory: String, within time: Duration
    ) async throws(ProviderError) -> ScreenTurn? {
        let end = ContinuousClock.now + time
        let turn: ScreenTurn
        do throws(SafeDirectory.Refusal) {
            let directory = try SafeDirectory.create(directory, .system)
            let descriptor = FileSystem.system.create(directory.descriptor, name, O_RDWR)
            guard descriptor >= 0 else { throw directory.failure("\(directory.path)/\(name) cannot be opened") }
            turn = ScreenTurn(descriptor)
        } catch {
            throw error.error(.storeWriteFailed, "No question can be asked: \(error.reason.withVisibleControls).")
        }
        while flock(turn.descriptor, LOCK_EX | LOCK_NB) != 0 {
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
        return turn
    }
}

import CertificateProviding
import Glibc

/// The right to change the store, held by one process and one thread at a time. Readers need no lock, because every
/// change is one rename. The kernel gives the lock back when its holder dies.
final class StoreLock {
    private static let name = ".lock"
    private let descriptor: Int32

    /// Waits at most `patience` for the lock.
    init(in directory: SafeDirectory, patience: Duration = .seconds(10)) throws(SafeDirectory.Refusal) {
        let flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW
        descriptor = openat(directory.descriptor, Self.name, flags, 0o600)
        guard descriptor >= 0 else {
            throw SafeDirectory.Refusal(
                reason: "\(directory.path) cannot be written to: \(errorText(errno))")
        }
        let deadline = ContinuousClock.now + patience
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            guard errno == EWOULDBLOCK || errno == EINTR, ContinuousClock.now < deadline else {
                let code = errno
                close(descriptor)
                throw SafeDirectory.Refusal(
                    reason: code == EWOULDBLOCK
                        ? "another process has held \(directory.path)/\(Self.name) for \(patience.components.seconds) seconds"
                        : "\(directory.path) cannot be locked: \(errorText(code))")
            }
            usleep(2000)
        }
    }

    deinit { close(descriptor) }
}

import CertificateProviding
import Glibc
import SystemPackage

/// The lock of writers to the store, held by one process and one thread at a time. Readers need no lock, because every
/// change is one rename. The kernel releases the lock when its holder dies.
package final class StoreLock {
    /// How long a writer waits for another one: many times the duration of a write on a slow disk.
    package static let timeout = Duration.seconds(10)

    private static let name = ".lock"
    private let descriptor: Int32

    /// Takes the lock, waiting at most `timeout`. Throws if the directory was removed during the wait.
    package init(
        in directory: SafeDirectory, timeout: Duration, _ files: FileSystem
    ) throws(SafeDirectory.Refusal) {
        // From here on `deinit` closes it, also when this initialiser throws.
        descriptor = files.create(directory.descriptor, Self.name, O_RDWR)
        guard descriptor >= 0 else { throw directory.failure("\(directory.path) cannot be written to") }
        let deadline = ContinuousClock.now + timeout
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            let code = errno
            guard code == EWOULDBLOCK || code == EINTR, ContinuousClock.now < deadline else {
                guard code == EWOULDBLOCK else {
                    throw SafeDirectory.Refusal(reason: "\(directory.path) cannot be locked: \(errorText(code))")
                }
                let holder = LockHolder(of: descriptor)?.description ?? "another process"
                throw SafeDirectory.Refusal(
                    reason: "\(holder) has held the lock \(directory.path)/\(Self.name) for "
                        + "\(timeout.components.seconds) seconds; wait until it has finished, or end it",
                    isBusy: true)
            }
            usleep(2000)
        }
        // A file written there is lost, and a missing one may be elsewhere.
        guard let links = try? FileDescriptor(rawValue: descriptor).stat().linkCount, links > 0 else {
            throw SafeDirectory.Refusal(reason: "\(directory.path) was removed by another process; try again")
        }
    }

    deinit {
        guard descriptor >= 0 else { return }
        // A process that another thread has forked has the same open file until it runs its program.
        flock(descriptor, LOCK_UN)
        close(descriptor)
    }
}

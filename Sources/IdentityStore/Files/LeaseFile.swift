import CertificateProviding
import Glibc

/// A ``RecordLease`` between processes: a locked file. Its first byte says whether an operation is in progress, or was
/// when a process ended; its second byte, whether another process waits for the lease.
///
/// The kernel releases the lock when its holder dies; a stored process id would not work across containers. The bytes
/// are not flushed, so that taking a lease does not wait for the disk. They survive the end of a process, and may be
/// lost in a power failure.
final class LeaseFile: Sendable {
    private static let prefix = ".claim-"
    private static let interrupted: off_t = 0
    private static let awaited: off_t = 1
    private let descriptor: Int32
    private let files: FileSystem
    private let isWritable: Bool
    /// The value found when the lease was taken.
    let isUnsettled: Bool

    /// Takes the lease; `nil` while another process or thread holds it.
    init?(_ name: String, in directory: SafeDirectory, _ files: FileSystem) throws(SafeDirectory.Refusal) {
        let file = Self.prefix + name
        var descriptor = files.create(directory.descriptor, file, O_RDWR)
        isWritable = descriptor >= 0
        if !isWritable {
            // A lock needs no right to write, and so holds on a disk that is read-only by now.
            let failure = directory.failure("\(directory.path) cannot be written to")
            guard let existing = try? directory.openFile(file) else { throw failure }
            descriptor = existing
        }
        let code = Self.lock(descriptor)
        isUnsettled = code == 0 && Self.byte(Self.interrupted, of: descriptor) ?? 0 != 0
        // From here on `deinit` closes it.
        self.descriptor = descriptor
        self.files = files
        if code == EWOULDBLOCK {
            if !isAwaited { write(1, at: Self.awaited) }
            return nil
        }
        guard code == 0 else {
            throw SafeDirectory.Refusal(reason: "\(directory.path)/\(file) cannot be locked: \(errorText(code))")
        }
        // Processes that still wait say so again. A new file gets its size now, since the disk may be full later.
        if Self.byte(Self.awaited, of: descriptor) != 0 { write(0, at: Self.awaited) }
    }

    private static func lock(_ descriptor: Int32) -> Int32 {
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            if errno != EINTR { return errno }
        }
        return 0
    }

    /// The holder of the lease; `nil` if the kernel does not tell.
    static func holder(_ name: String, in directory: SafeDirectory) -> LockHolder? {
        guard let descriptor = try? directory.openFile(prefix + name) else { return nil }
        defer { close(descriptor) }
        return LockHolder(of: descriptor)
    }

    deinit {
        // A process that another thread has forked has the same open file until it runs its program.
        flock(descriptor, LOCK_UN)
        close(descriptor)
    }

    /// Whether another process or thread has tried to take the lease since this one holds it.
    var isAwaited: Bool { Self.byte(Self.awaited, of: descriptor) ?? 0 != 0 }

    func note(isUnsettled: Bool) { write(isUnsettled ? 1 : 0, at: Self.interrupted) }

    /// Reads one byte; `nil` if the file is shorter.
    private static func byte(_ offset: off_t, of descriptor: Int32) -> UInt8? {
        var byte: UInt8 = 0
        return pread(descriptor, &byte, 1, offset) == 1 ? byte : nil
    }

    /// Writes one byte. Errors are ignored.
    private func write(_ byte: UInt8, at offset: off_t) {
        guard isWritable, lseek(descriptor, offset, SEEK_SET) == offset else { return }
        _ = withUnsafeBytes(of: byte) { files.write(descriptor, $0) }
    }
}

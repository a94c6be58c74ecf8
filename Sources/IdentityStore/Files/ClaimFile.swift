import Glibc

/// What makes a ``RecordClaim`` hold between processes: a file that one of them has locked. Its one byte says whether
/// somebody has the claim, or ended without giving it back.
///
/// The kernel gives the lock back when its holder dies, which no process's number shows across containers. The byte is
/// not flushed, so that a claim costs no wait for the disk: it is there after the end of a process, and may be lost
/// with the power.
final class ClaimFile: Sendable {
    private static let prefix = ".claim-"
    private let descriptor: Int32
    private let files: FileSystem
    private let isWritable: Bool
    let wasInterrupted: Bool

    /// Returns `nil` while another one has the claim.
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
        var byte: UInt8 = 0
        wasInterrupted = code == 0 && pread(descriptor, &byte, 1, 0) == 1 && byte != 0
        // From here on `deinit` closes it.
        self.descriptor = descriptor
        self.files = files
        if code == EWOULDBLOCK { return nil }
        guard code == 0 else {
            throw SafeDirectory.Refusal(reason: "\(directory.path)/\(file) cannot be locked: \(errorText(code))")
        }
        note(1)
    }

    private static func lock(_ descriptor: Int32) -> Int32 {
        while flock(descriptor, LOCK_EX | LOCK_NB) != 0 {
            if errno != EINTR { return errno }
        }
        return 0
    }

    deinit { close(descriptor) }

    /// To be called once. The lock goes with the last user of this object.
    func giveBack(isInterrupted: Bool) { if !isInterrupted { note(0) } }

    /// As far as the disk permits.
    private func note(_ value: UInt8) {
        guard isWritable, lseek(descriptor, 0, SEEK_SET) == 0 else { return }
        _ = withUnsafeBytes(of: value) { files.write(descriptor, $0) }
    }
}

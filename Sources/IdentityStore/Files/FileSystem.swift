import CLinux
package import Glibc
import SystemPackage

/// The system calls that change the disk, replaceable so that a test can make each of them fail.
///
/// As in C, a negative result is a failure with the reason in `errno`.
package struct FileSystem: Sendable {
    /// The calls themselves.
    package static let system = FileSystem()

    /// Opens the file `name` for writing, and creates it with mode 0600 if it does not exist. With `O_EXCL` in `flags`
    /// it must not exist.
    package var create: @Sendable (_ directory: Int32, _ name: String, _ flags: Int32) -> Int32 = {
        openat($0, $1, O_CREAT | O_CLOEXEC | O_NOFOLLOW | $2, 0o600)
    }
    package var write: @Sendable (_ descriptor: Int32, UnsafeRawBufferPointer) -> Int = {
        Glibc.write($0, $1.baseAddress, $1.count)
    }
    package var changeMode: @Sendable (_ descriptor: Int32, mode_t) -> Int32 = { fchmod($0, $1) }
    package var changeOwner: @Sendable (_ descriptor: Int32, UInt32, UInt32) -> Int32 = { fchown($0, $1, $2) }
    package var changeAccessList: @Sendable (_ descriptor: Int32, [UInt8]) -> Int32 = {
        certprov_set_access_list($0, $1, $1.count)
    }
    package var synchronize: @Sendable (_ descriptor: Int32) -> Int32 = { fsync($0) }
    package var rename: @Sendable (_ directory: Int32, _ from: String, _ to: String) -> Int32 = {
        renameat($0, $1, $0, $2)
    }
    package var link: @Sendable (_ directory: Int32, _ from: String, _ to: String) -> Int32 = {
        linkat($0, $1, $0, $2, 0)
    }
    package var symbolicLink: @Sendable (_ target: String, _ directory: Int32, _ name: String) -> Int32 = {
        symlinkat($0, $1, $2)
    }
    package var unlink: @Sendable (_ directory: Int32, _ name: String) -> Int32 = { unlinkat($0, $1, 0) }
    package var makeDirectory: @Sendable (_ directory: Int32, _ name: String, mode_t) -> Int32 = { mkdirat($0, $1, $2) }
    package var removeDirectory: @Sendable (_ directory: Int32, _ name: String) -> Int32 = {
        unlinkat($0, $1, AT_REMOVEDIR)
    }
}

extension FileSystem {
    /// More than an identity takes, in bytes.
    package static let trialSize = 32_768
    /// `O_TMPFILE`, which Swift does not import.
    private static let unnamed = O_DIRECTORY | 0o20_000_000

    /// Whether an error says that there is no space left.
    package static func isFull(_ code: Int32) -> Bool { [ENOSPC, EDQUOT].contains(code) }

    /// Writes a file that has no name and leaves nothing behind.
    ///
    /// - Returns: `errno` if that fails, and else `nil`.
    package func tryWrite(in directory: String, bytes count: Int = trialSize) -> Int32? {
        let file = open(directory, O_WRONLY | O_CLOEXEC | Self.unnamed, 0o600)
        guard file >= 0 else {
            let code = errno
            // A file system that has no such files.
            let isPossible = [EOPNOTSUPP, EISDIR, EINVAL].contains(code)
            return isPossible && faccessat(AT_FDCWD, directory, W_OK | X_OK, AT_EACCESS) == 0 ? nil : code
        }
        defer { close(file) }
        var rest = [UInt8](repeating: 0, count: count)[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { write(file, $0) }
            if written < 0 && errno == EINTR { continue }
            guard written > 0 else { return errno }
            rest = rest.dropFirst(written)
        }
        return count == 0 || synchronize(file) == 0 ? nil : errno
    }
}

/// Whether all users of this host may read the regular file at `path`.
package func isReadableByEverybody(_ path: String) -> Bool {
    guard let status = try? FilePath(path).stat() else { return false }
    return status.type == .regular && status.permissions.contains(.otherRead)
}

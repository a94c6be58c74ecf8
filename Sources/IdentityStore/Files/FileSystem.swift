import Glibc
import SystemPackage

/// The system calls that change the disk, so that a test can make each of them fail.
///
/// As in C: a negative result is a failure, with the reason in `errno`.
struct FileSystem: Sendable {
    var write: @Sendable (_ descriptor: Int32, UnsafeRawBufferPointer) -> Int = {
        Glibc.write($0, $1.baseAddress, $1.count)
    }
    var synchronize: @Sendable (_ descriptor: Int32) -> Int32 = { fsync($0) }
    var rename: @Sendable (_ directory: Int32, _ from: String, _ to: String) -> Int32 = { renameat($0, $1, $0, $2) }
    var link: @Sendable (_ directory: Int32, _ from: String, _ to: String) -> Int32 = { linkat($0, $1, $0, $2, 0) }
    var unlink: @Sendable (_ directory: Int32, _ name: String) -> Int32 = { unlinkat($0, $1, 0) }
}

/// Why a system call failed, in words.
func errorText(_ code: Int32) -> String { String(cString: strerror(code)) }

/// Whether everybody on this host may read the regular file at `path`.
package func isReadableByEverybody(_ path: String) -> Bool {
    guard let status = try? FilePath(path).stat() else { return false }
    return status.type == .regular && status.permissions.contains(.otherRead)
}

public import Glibc

/// The kernel's data about a file, in types of Swift's own: a file that imports Foundation may get those of C from another
/// module.
public struct FileStatus: Equatable {
    public let inode: UInt64
    public let mode: mode_t
    public let size: Int
    public let owner: uid_t
    /// The last change of its content, in seconds and nanoseconds.
    public let modified: [Int]

    public var isRegular: Bool { mode & S_IFMT == S_IFREG }
    public var permissions: mode_t { mode & 0o7777 }

    /// Returns `nil` if there is none.
    ///
    /// - Parameter followsLink: Whether a link's target counts, and not the link.
    public init?(_ path: String, followsLink: Bool = false) {
        var status = stat()
        guard (followsLink ? stat(path, &status) : lstat(path, &status)) == 0 else { return nil }
        (inode, mode, size, owner) = (UInt64(status.st_ino), status.st_mode, Int(status.st_size), status.st_uid)
        modified = [status.st_mtim.tv_sec, status.st_mtim.tv_nsec]
    }
}

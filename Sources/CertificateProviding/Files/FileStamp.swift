public import FoundationEssentials
import Glibc
import SystemPackage

/// The fields that show a change of a file.
public struct FileStamp: Sendable, Hashable {
    private let device: UInt64
    private let inode: UInt64
    private let size: Int64
    private let modified: [Int]
    /// The last change of the content, the name or the mode, since 1970. No program can set it: it tells a file from another one
    /// that was copied over it with its size and time.
    private let changed: [Int]

    /// Looks at the file, following symbolic links. `nil` for one that cannot be looked at. Blocks on the file system only.
    public init?(of path: String) {
        guard !path.utf8.contains(0), let status = try? FilePath(path).stat() else { return nil }
        (device, inode, size) = (UInt64(status.deviceID.rawValue), UInt64(status.inode.rawValue), status.size)
        modified = [status.st_mtim.tv_sec, status.st_mtim.tv_nsec]
        changed = [status.st_ctim.tv_sec, status.st_ctim.tv_nsec]
    }

    /// Returns whether the file changed within a time before `now`.
    public func isChanged(within duration: Duration, before now: Date) -> Bool {
        abs(now.timeIntervalSince1970 - Double(changed[0])) <= duration / .seconds(1)
    }

    public static func == (left: Self, right: Self) -> Bool {
        left.device == right.device && left.inode == right.inode && left.size == right.size
            && left.modified == right.modified && left.changed == right.changed
    }

    public func hash(into hasher: inout Hasher) {
        hasher.combine(device)
        hasher.combine(inode)
        hasher.combine(modified)
    }
}

import CertificateProviding
import Glibc
import SystemPackage

/// An open directory in which nobody else can put or change anything. Everything in it is reached relative to the
/// descriptor, so that a path that is changed meanwhile cannot lead elsewhere.
final class SafeDirectory: Sendable {
    let descriptor: Int32
    let path: String

    private init(descriptor: Int32, path: String) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit { close(descriptor) }

    /// Why a directory or file is not used: a sentence with the next step.
    struct Refusal: Error { var reason: String }

    /// Opens the directory at `path`, or returns `nil` when there is none.
    static func open(_ path: String) throws(Refusal) -> SafeDirectory? {
        try open(path, at: AT_FDCWD, name: path)
    }

    /// Opens the directory `name` in this one, or returns `nil` when there is none.
    func directory(_ name: String) throws(Refusal) -> SafeDirectory? {
        try Self.open(path + "/" + name, at: descriptor, name: name)
    }

    /// Makes the directory at the absolute `path`, with its parents, for this user alone, and opens it.
    static func create(_ path: String, _ files: FileSystem) throws(Refusal) -> SafeDirectory {
        var partial = ""
        for component in path.split(separator: "/") {
            partial += "/" + component
            try make(partial, mode: 0o700, files)
        }
        guard let directory = try open(path) else { throw Refusal(reason: "\(path) has just vanished") }
        return directory
    }

    /// Makes the directory at `path`, but not its parents, unless there is one already.
    static func make(_ path: String, mode: mode_t, _ files: FileSystem) throws(Refusal) {
        guard type(of: path, followingLinks: true) != .directory, let name = FilePath(path).lastComponent else {
            return
        }
        let parent = FilePath(path).removingLastComponent()
        let descriptor = Glibc.open(parent.isEmpty ? "." : parent.string, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Refusal(reason: "\(path) cannot be made: \(errorText(errno))") }
        defer { close(descriptor) }
        try make(name.string, in: descriptor, path: path, mode: mode, files)
    }

    private static func make(
        _ name: String, in parent: Int32, path: String, mode: mode_t, _ files: FileSystem
    ) throws(Refusal) {
        guard files.makeDirectory(parent, name, mode) == 0 else {
            if errno == EEXIST { return }
            throw Refusal(reason: "\(path) cannot be made: \(errorText(errno))")
        }
        // The new name must be on disk before anything in it is relied on.
        guard files.synchronize(parent) == 0 else {
            let code = errno
            // The next writer would take a directory that is there for one that is on disk.
            _ = files.removeDirectory(parent, name)
            throw Refusal(reason: "\(path) cannot be flushed: \(errorText(code))")
        }
    }

    /// Makes the directory `name` in this one for this user alone, and opens it.
    func create(_ name: String, _ files: FileSystem) throws(Refusal) -> SafeDirectory {
        try Self.make(name, in: descriptor, path: "\(path)/\(name)", mode: 0o700, files)
        guard let directory = try directory(name) else {
            throw Refusal(reason: "\(path)/\(name) has just vanished")
        }
        return directory
    }

    /// Opens the regular file `name` for reading, or returns `nil` when there is none.
    func openFile(_ name: String) throws(Refusal) -> Int32? {
        let file = openat(descriptor, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard file >= 0 else {
            let code = errno
            if code == ENOENT { return nil }
            let why = code == ELOOP ? "it is a symbolic link, which is never followed here" : errorText(code)
            throw Refusal(reason: "\(path)/\(name) cannot be opened: \(why)")
        }
        do throws(Refusal) {
            try Self.check(file, path + "/" + name, isDirectory: false)
            return file
        } catch {
            close(file)
            throw error
        }
    }

    private static func open(_ path: String, at parent: Int32, name: String) throws(Refusal) -> SafeDirectory? {
        let descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
        guard descriptor >= 0 else {
            let code = errno
            if code == ENOENT { return nil }
            let isLink =
                code == ELOOP
                || code == ENOTDIR
                    && (type(of: path, followingLinks: true) != .directory
                        || type(of: path, followingLinks: false) == .symbolicLink)
            throw Refusal(
                reason: isLink
                    ? "\(path) is not a directory (or a symbolic link, which is never followed here)"
                    : "\(path) cannot be opened: \(errorText(code))")
        }
        let directory = SafeDirectory(descriptor: descriptor, path: path)
        try check(descriptor, path, isDirectory: true)
        return directory
    }

    /// Refuses what somebody else owns or may change (a file: may even read).
    private static func check(_ descriptor: Int32, _ path: String, isDirectory: Bool) throws(Refusal) {
        let status: Stat
        do throws(Errno) { status = try FileDescriptor(rawValue: descriptor).stat() } catch {
            throw Refusal(reason: "\(path) cannot be examined: \(error)")
        }
        guard status.type == (isDirectory ? .directory : .regular) else {
            throw Refusal(reason: "\(path) is not a \(isDirectory ? "directory" : "regular file")")
        }
        guard status.userID.rawValue == geteuid() else {
            throw Refusal(
                // The owner is most often a service whose store root looks at: taking it would lock the service out.
                reason:
                    "\(path) belongs to another user (uid \(status.userID.rawValue)): run certprov as that user, or, "
                    + "to take it from that user for good, run: chown -R \(geteuid()) " + path.shellQuoted)
        }
        guard status.permissions.rawValue & (isDirectory ? 0o022 : 0o077) == 0 else {
            throw Refusal(
                reason: "\(path) is open to others (mode \(String(status.permissions.rawValue, radix: 8))); run: chmod "
                    + (isDirectory ? "700 " : "600 ") + path.shellQuoted)
        }
    }

    private static func type(of path: String, followingLinks: Bool) -> FileType? {
        try? FilePath(path).stat(followTargetSymlink: followingLinks).type
    }
}

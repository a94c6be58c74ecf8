package import CertificateProviding
package import Glibc
import SystemPackage

/// An open directory that only this user can change. Its contents are accessed relative to the descriptor, so that a
/// path that changes during the access cannot lead elsewhere.
package final class SafeDirectory: Sendable {
    package let descriptor: Int32
    package let path: String

    private init(descriptor: Int32, path: String) {
        self.descriptor = descriptor
        self.path = path
    }

    deinit { close(descriptor) }

    /// The reason why a directory or file is not used: a clause with the next step.
    package struct Refusal: Error {
        package var reason: String
        /// Whether another process or thread holds a lock.
        package var isBusy = false

        package init(reason: String, isBusy: Bool = false) { (self.reason, self.isBusy) = (reason, isBusy) }

        /// Returns the error with this code; while a lock is held, `operationNotAllowed`: the same call may succeed soon.
        package func error(
            _ code: ProviderError.Code, _ message: String, provider: ProviderID? = nil
        ) -> ProviderError {
            ProviderError(
                isBusy ? .operationNotAllowed : code, message, provider: provider,
                reason: isBusy ? .busy : nil)
        }
    }

    /// Opens the directory at `path`; `nil` if it does not exist.
    package static func open(_ path: String) throws(Refusal) -> SafeDirectory? {
        guard let place = try parent(of: path) else { return nil }
        defer { withExtendedLifetime(place) {} }
        return try open(path, at: place.parent.descriptor, name: place.name)
    }

    /// Opens the directory that `path` is in; `nil` if it does not exist.
    private static func parent(of path: String) throws(Refusal) -> (parent: ReachedDirectory, name: String)? {
        let full = FilePath(path)
        guard let parent = try ReachedDirectory.open(full.removingLastComponent().string) else { return nil }
        return (parent, full.lastComponent?.string ?? ".")
    }

    /// Opens the subdirectory `name`; `nil` if it does not exist.
    package func directory(_ name: String) throws(Refusal) -> SafeDirectory? {
        try Self.open(path + "/" + name, at: descriptor, name: name)
    }

    /// Creates the directory at the absolute `path` and its parents with mode 0700, and opens it.
    package static func create(_ path: String, _ files: FileSystem) throws(Refusal) -> SafeDirectory {
        var partial = ""
        for component in path.split(separator: "/") {
            partial += "/" + component
            try make(partial, mode: 0o700, files)
        }
        guard let directory = try open(path) else { throw Refusal(reason: "\(path) was removed by another process") }
        return directory
    }

    /// Creates the directory at `path`, but not its parents, unless it exists.
    package static func make(_ path: String, mode: mode_t, _ files: FileSystem) throws(Refusal) {
        guard type(of: path, followingLinks: true) != .directory else { return }
        guard let place = try parent(of: path) else {
            throw Refusal(
                reason: "\(path) cannot be created: \(errorText(ENOENT)); create the directory that it is to be in")
        }
        let descriptor = openat(place.parent.descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Refusal(reason: "\(path) cannot be created: \(errorText(errno))") }
        defer { close(descriptor) }
        try make(place.name, in: descriptor, path: path, mode: mode, files)
    }

    private static func make(
        _ name: String, in parent: Int32, path: String, mode: mode_t, _ files: FileSystem
    ) throws(Refusal) {
        guard files.makeDirectory(parent, name, mode) == 0 else {
            if errno == EEXIST { return }
            throw Refusal(reason: "\(path) cannot be created: \(errorText(errno))")
        }
        // The umask may have taken the rights of others.
        if mode & 0o077 != 0 {
            let descriptor = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
            guard descriptor >= 0 else { throw Refusal(reason: "\(path) cannot be opened: \(errorText(errno))") }
            let directory = SafeDirectory(descriptor: descriptor, path: path)
            // A user who may change the parent can have put another directory of this user there, which must not be opened to all.
            guard try directory.isEmptyAndOwn else {
                throw Refusal(reason: "\(path) was replaced by another user while it was made")
            }
            guard files.changeMode(descriptor, mode) == 0 else {
                let code = errno
                _ = files.removeDirectory(parent, name)
                throw Refusal(reason: "\(path) cannot be given its mode: \(errorText(code))")
            }
        }
        // The new name must be on disk before anything in it is relied on.
        guard files.synchronize(parent) == 0 else {
            let code = errno
            // The next writer would take a directory that is there for one that is on disk.
            _ = files.removeDirectory(parent, name)
            throw Refusal(reason: "\(path) cannot be flushed to disk: \(errorText(code))")
        }
    }

    private var isEmptyAndOwn: Bool {
        get throws(Refusal) {
            guard let status = try? FileDescriptor(rawValue: descriptor).stat(), status.userID.rawValue == geteuid()
            else { return false }
            return try entries().isEmpty
        }
    }

    /// Creates the subdirectory `name` with mode 0700, and opens it.
    package func create(_ name: String, _ files: FileSystem) throws(Refusal) -> SafeDirectory {
        try Self.make(name, in: descriptor, path: "\(path)/\(name)", mode: 0o700, files)
        guard let directory = try directory(name) else {
            throw Refusal(reason: "\(path)/\(name) was removed by another process")
        }
        return directory
    }

    /// Removes the file or directory `name` with all that is in it, if it exists. The caller must flush this directory.
    package func removeTree(_ name: String, _ files: FileSystem) throws(Refusal) {
        if files.unlink(descriptor, name) == 0 || errno == ENOENT { return }
        guard errno == EISDIR || errno == EPERM, let inner = try directory(name) else {
            throw failure("\(path)/\(name) cannot be removed")
        }
        for entry in try inner.entries() { try inner.removeTree(entry, files) }
        guard files.removeDirectory(descriptor, name) == 0 || errno == ENOENT else {
            throw failure("\(path)/\(name) cannot be removed")
        }
    }

    /// Opens the regular file `name` for reading; `nil` if it does not exist.
    package func openFile(_ name: String) throws(Refusal) -> Int32? {
        let file = openat(descriptor, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard file >= 0 else {
            let code = errno
            if code == ENOENT { return nil }
            let why = code == ELOOP ? "it is a symbolic link, and certprov does not follow links here" : errorText(code)
            throw Refusal(reason: "\(path)/\(name) cannot be opened: \(why)")
        }
        do throws(Refusal) {
            try check(file, name)
            return file
        } catch {
            close(file)
            throw error
        }
    }

    /// Refuses the open file `name` unless it is a regular file of this user that others can neither read nor write.
    package func check(_ file: Int32, _ name: String) throws(Refusal) {
        try Self.check(file, path + "/" + name, isDirectory: false)
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
                    ? "\(path) is not a directory, or is a symbolic link, and certprov does not follow links here; name a directory"
                    : "\(path) cannot be opened: \(errorText(code))")
        }
        let directory = SafeDirectory(descriptor: descriptor, path: path)
        try check(descriptor, path, isDirectory: true)
        return directory
    }

    /// Refuses a file or directory that another user owns or may write to, and a file that another user may read.
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
                // The owner is most often a service whose store root looks at: taking it would lock the service out. Or it is a
                // directory for all, such as /tmp or a volume of a container.
                reason: "\(path) belongs to another user (uid \(status.userID.rawValue)): run certprov as that user"
                    + (isDirectory ? ", or \(Self.otherDirectory)" : ""))
        }
        guard status.permissions.rawValue & (isDirectory ? 0o022 : 0o077) == 0 else {
            throw Refusal(
                reason: "\(path) is open to other users (mode \(String(status.permissions.rawValue, radix: 8))); "
                    // A directory for all, such as /tmp.
                    + (isDirectory && status.permissions.rawValue & 0o1000 != 0
                        ? Self.otherDirectory
                        : "run: chmod " + (isDirectory ? "go-w " : "600 ") + path.shellQuoted
                            + (isDirectory ? ", or where others need it, \(Self.otherDirectory)" : "")))
        }
    }

    private static let otherDirectory = "name a new subdirectory of it (for the store of identities: STATE_DIRECTORY)"

    private static func type(of path: String, followingLinks: Bool) -> FileType? {
        try? FilePath(path).stat(followTargetSymlink: followingLinks).type
    }
}

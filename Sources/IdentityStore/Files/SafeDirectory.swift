import CertificateProviding
import Glibc

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

    /// Makes the directory at `path`, with its parents, for this user alone, and opens it.
    static func create(_ path: String) throws(Refusal) -> SafeDirectory {
        var partial = ""
        for component in path.split(separator: "/") {
            partial += "/" + component
            guard mkdir(partial, 0o700) == 0 || errno == EEXIST || isDirectory(partial) else {
                throw Refusal(reason: "\(partial) cannot be made: \(errorText(errno))")
            }
        }
        guard let directory = try open(path) else { throw Refusal(reason: "\(path) has just vanished") }
        return directory
    }

    /// Makes the directory `name` in this one for this user alone, and opens it.
    func create(_ name: String, _ files: FileSystem) throws(Refusal) -> SafeDirectory {
        if mkdirat(descriptor, name, 0o700) == 0 {
            // The new name must be on disk before anything in it is relied on.
            guard files.synchronize(descriptor) == 0 else { throw failure("\(path) cannot be flushed") }
        } else if errno != EEXIST {
            throw failure("\(path)/\(name) cannot be made")
        }
        guard let directory = try directory(name) else {
            throw Refusal(reason: "\(path)/\(name) has just vanished")
        }
        return directory
    }

    /// Opens the regular file `name` for reading, or returns `nil` when there is none.
    func openFile(_ name: String) throws(Refusal) -> (descriptor: Int32, size: Int)? {
        let file = openat(descriptor, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard file >= 0 else {
            let code = errno
            if code == ENOENT { return nil }
            let why = code == ELOOP ? "it is a symbolic link, which is never followed here" : errorText(code)
            throw Refusal(reason: "\(path)/\(name) cannot be opened: \(why)")
        }
        do throws(Refusal) {
            return (file, try Self.check(file, path + "/" + name, isDirectory: false))
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
            let isLink = code == ELOOP || (code == ENOTDIR && !isDirectory(path) || isSymbolicLink(path))
            throw Refusal(
                reason: isLink
                    ? "\(path) is not a directory (or a symbolic link, which is never followed here)"
                    : "\(path) cannot be opened: \(errorText(code))")
        }
        let directory = SafeDirectory(descriptor: descriptor, path: path)
        _ = try check(descriptor, path, isDirectory: true)
        return directory
    }

    /// Refuses what somebody else owns or may change (a file: may even read), and returns the size.
    private static func check(_ descriptor: Int32, _ path: String, isDirectory: Bool) throws(Refusal) -> Int {
        var status = stat()
        guard fstat(descriptor, &status) == 0 else {
            throw Refusal(reason: "\(path) cannot be examined: \(errorText(errno))")
        }
        guard status.st_mode & S_IFMT == (isDirectory ? S_IFDIR : S_IFREG) else {
            throw Refusal(reason: "\(path) is not a \(isDirectory ? "directory" : "regular file")")
        }
        guard status.st_uid == geteuid() else {
            throw Refusal(
                reason: "\(path) belongs to another user (uid \(status.st_uid)); run: chown -R \(geteuid()) "
                    + path.shellQuoted)
        }
        let forbidden: UInt32 = isDirectory ? 0o022 : 0o077
        guard status.st_mode & forbidden == 0 else {
            throw Refusal(
                reason: "\(path) is open to others (mode \(String(status.st_mode & 0o777, radix: 8))); run: chmod "
                    + (isDirectory ? "700 " : "600 ") + path.shellQuoted)
        }
        return Int(status.st_size)
    }

    private static func isDirectory(_ path: String) -> Bool {
        var status = stat()
        return stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    private static func isSymbolicLink(_ path: String) -> Bool {
        var status = stat()
        return lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFLNK
    }
}

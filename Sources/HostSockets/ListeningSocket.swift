import CLinux
package import CertificateProviding
package import Glibc

/// A Unix socket at which connections arrive. Made here, or passed by the service manager.
package final class ListeningSocket: Sendable {
    package let descriptor: Int32
    /// The file of the socket that was made here.
    private let file: (path: String, identity: File)?

    private struct File: Equatable {
        let device: dev_t
        let number: ino_t

        init?(_ path: String) {
            var status = stat()
            guard lstat(path, &status) == 0 else { return nil }
            (device, number) = (status.st_dev, status.st_ino)
        }

        init?(descriptor: Int32) {
            var status = stat()
            guard fstat(descriptor, &status) == 0 else { return nil }
            (device, number) = (status.st_dev, status.st_ino)
        }
    }

    /// Takes a socket that another process has made, and removes.
    init(passed descriptor: Int32) {
        (self.descriptor, file) = (descriptor, nil)
        _ = certprov_set_nonblocking(descriptor)
    }

    /// Makes a socket, which has its mode and group before the first connection. The file of a process that has ended is replaced.
    ///
    /// - Parameters:
    ///   - file: Its path.
    ///   - setting: The option or property that names another path, for messages: `--socket`.
    ///   - mode: Who may connect, by the write permission.
    ///   - group: Its group; `nil` for that of the process.
    /// - Throws: `alreadyExists` if another process listens there, or the file is not a socket of this user;
    ///   `configurationInvalid`, `operationNotAllowed`, `storeWriteFailed`.
    package init(
        at file: String, setting: String, mode: mode_t = 0o600, group: gid_t? = nil
    ) throws(ProviderError) {
        let name = file.withVisibleControls
        func failed(_ code: Int32) -> ProviderError {
            ProviderError(
                .storeWriteFailed,
                "The socket \(name) cannot be made: \(errorText(code)); name another one with \(setting).")
        }
        let descriptor = UnixSocket.make()
        guard descriptor >= 0 else { throw failed(errno) }
        var isDone = false
        defer { if !isDone { close(descriptor) } }
        // The file gets the mode of the descriptor, so that others cannot connect at any moment.
        guard certprov_set_nonblocking(descriptor) == 0, fchmod(descriptor, 0o600) == 0 else { throw failed(errno) }
        guard UnixSocket.withAddress(file, { _, _ in }) != nil else {
            throw UnixSocket.isNoAddress(file, setting: setting)
        }
        // Of two processes that find the file of one that has ended, the second would remove the socket of the first. The lock is of a file
        // that no other user can open: each user that can read a directory can lock it, and would keep this process from its start.
        let lock = file + ".lock"
        let holder = open(lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0o600)
        guard holder >= 0 else { throw failed(errno) }
        defer { close(holder) }
        // The process before has removed its file: a lock of that is none.
        guard flock(holder, LOCK_EX | LOCK_NB) == 0, File(lock) == File(descriptor: holder) else {
            throw ProviderError(
                .operationNotAllowed, "Another process is about to make a socket at \(name); try again.", reason: .busy)
        }
        defer { unlink(lock) }
        var code = Self.bind(descriptor, to: file)
        if code == EADDRINUSE {
            try Self.removeRemains(file, setting)
            code = Self.bind(descriptor, to: file)
        }
        guard code == 0 else { throw failed(code) }
        // The umask has taken its bits. Until listen(2) no connection is made, and a link in the place of the file is not followed.
        if mode != 0o600 || group != nil {
            guard lchown(file, .max, group ?? .max) == 0,
                fchmodat(AT_FDCWD, file, mode, Int32(AT_SYMLINK_NOFOLLOW)) == 0
            else {
                code = errno
                unlink(file)
                throw failed(code)
            }
        }
        // The kernel bounds the number by net.core.somaxconn.
        guard listen(descriptor, 4096) == 0 else { throw failed(errno) }
        (self.descriptor, self.file) = (descriptor, File(file).map { (file, $0) })
        isDone = true
    }

    deinit {
        removeFile()
        close(descriptor)
    }

    /// Removes the file of a socket that was made here, if it still is that one. For the end of the process.
    package func removeFile() {
        // While the descriptor is open, no other process takes the file for one of a process that has ended.
        guard let file, File(file.path) == file.identity else { return }
        unlink(file.path)
    }

    /// Returns the error's number, or 0.
    private static func bind(_ descriptor: Int32, to path: String) -> Int32 {
        UnixSocket.withAddress(path) { Glibc.bind(descriptor, $0, $1) == 0 ? 0 : errno } ?? EINVAL
    }

    /// Removes the file of a socket whose process has ended.
    private static func removeRemains(_ path: String, _ setting: String) throws(ProviderError) {
        let name = path.withVisibleControls
        var status = stat()
        guard lstat(path, &status) == 0 else { return }
        guard status.st_mode & S_IFMT == S_IFSOCK, status.st_uid == geteuid() else {
            throw ProviderError(
                .alreadyExists, "\(name) exists, and is not a socket of this user; name another path with \(setting).")
        }
        let descriptor = UnixSocket.make()
        defer { if descriptor >= 0 { close(descriptor) } }
        guard descriptor >= 0, certprov_set_nonblocking(descriptor) == 0,
            UnixSocket.withAddress(path, { connect(descriptor, $0, $1) == 0 ? 0 : errno }) == ECONNREFUSED
        else {
            throw ProviderError(
                .alreadyExists,
                "Another process listens at \(name). End it, or where systemd does so, stop its socket unit; or name another path "
                    + "with \(setting).")
        }
        unlink(path)
    }
}

import CLinux
package import CertificateProviding
package import Glibc

/// A Unix socket at which connections arrive. Made here, or passed by the service manager.
package final class ListeningSocket: Sendable {
    package let descriptor: Int32
    /// The file of the socket that was made here.
    private let file: File?

    private struct File {
        let path: String
        let device: dev_t
        let number: ino_t

        init?(_ path: String) {
            var status = stat()
            guard lstat(path, &status) == 0 else { return nil }
            (self.path, device, number) = (path, status.st_dev, status.st_ino)
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
        // Of two processes that find the file of one that has ended, the second would remove the socket of the first.
        let end = file.lastIndex(of: "/")
        let directory = open(end.map { String(file[...$0]) } ?? ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard directory >= 0 else { throw failed(errno) }
        defer { close(directory) }
        guard flock(directory, LOCK_EX | LOCK_NB) == 0 else {
            throw ProviderError(
                .operationNotAllowed, "Another process is about to make a socket at \(name); try again.", reason: .busy)
        }
        guard var code = UnixSocket.withAddress(file, { bind(descriptor, $0, $1) == 0 ? 0 : errno }) else {
            throw UnixSocket.isNoAddress(file, setting: setting)
        }
        if code == EADDRINUSE {
            try Self.removeRemains(file, setting)
            code = UnixSocket.withAddress(file, { bind(descriptor, $0, $1) == 0 ? 0 : errno }) ?? EINVAL
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
        (self.descriptor, self.file) = (descriptor, File(file))
        isDone = true
    }

    deinit {
        removeFile()
        close(descriptor)
    }

    /// Removes the file of a socket that was made here, if it still is that one. For the end of the process.
    package func removeFile() {
        // While the descriptor is open, no other process takes the file for one of a process that has ended.
        guard let file, let now = File(file.path), now.device == file.device, now.number == file.number else { return }
        unlink(file.path)
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

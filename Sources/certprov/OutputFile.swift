import CertificateProviding
import Glibc

/// A file that the user has named for output. Written atomically, and readable by all users.
struct OutputFile {
    let path: String
    /// Whether an existing file may be replaced.
    let replacing: Bool

    /// Throws if ``write(_:)`` would fail. Call it before making the content of the file.
    /// - Throws: `storeWriteFailed`.
    func check() throws(CertificateProviderError) {
        var status = stat()
        guard lstat(path, &status) == 0 else {
            guard errno == ENOENT else { throw failure(errno) }
            guard access(directory, W_OK) == 0 else { throw failure(errno) }
            return
        }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw CertificateProviderError(
                .storeWriteFailed, "\(path.withVisibleControls) is not a regular file; name another one with --out.")
        }
        guard replacing else { throw exists() }
    }

    /// Writes the file.
    /// - Throws: `storeWriteFailed`; the file is then unchanged.
    func write(_ text: String) throws(CertificateProviderError) {
        try check()
        let temporary = "\(directory)/.certprov-" + String(UInt64.random(in: .min ... .max), radix: 36)
        let file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
        guard file >= 0 else { throw failure(errno) }
        defer {
            close(file)
            // Gone already where it was renamed.
            unlink(temporary)
        }
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { Glibc.write(file, $0.baseAddress, $0.count) }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { throw failure(errno) }
            bytes = bytes.dropFirst(count)
        }
        // Whatever the umask is.
        guard fchmod(file, 0o644) == 0, fsync(file) == 0 else { throw failure(errno) }
        // A hard link, unlike a rename, never replaces.
        guard (replacing ? rename(temporary, path) : link(temporary, path)) == 0 else {
            throw errno == EEXIST ? exists() : failure(errno)
        }
    }

    private var directory: String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    private func exists() -> CertificateProviderError {
        CertificateProviderError(
            .storeWriteFailed, "\(path.withVisibleControls) exists already; use --force to replace it.")
    }

    private func failure(_ code: Int32) -> CertificateProviderError {
        CertificateProviderError(
            .storeWriteFailed, "\(path.withVisibleControls) cannot be written: \(String(cString: strerror(code))).")
    }
}

import CertificateProviding
import Glibc
import IdentityStore

/// A file that the user has named for output. Written atomically, and readable by all users.
struct OutputFile: Sendable {
    let path: String
    /// Whether an existing file may be replaced.
    let replacing: Bool

    /// Throws if ``write(_:)`` would fail. Call it before making the content of the file.
    /// - Throws: `storeWriteFailed`.
    func check() throws(ProviderError) {
        var status = stat()
        guard lstat(path, &status) == 0 else {
            guard errno == ENOENT else { throw failure(errno) }
            guard access(directory, W_OK) == 0 else { throw failure(errno) }
            return
        }
        guard status.st_mode & S_IFMT == S_IFREG else {
            throw ProviderError(
                .storeWriteFailed, "\(path.withVisibleControls) is not a regular file; name another one with --out.")
        }
        guard replacing else { throw exists() }
    }

    /// Writes the file.
    /// - Throws: `storeWriteFailed`; the file is then unchanged.
    func write(_ text: String) throws(ProviderError) { try write(Array(text.utf8)) }

    /// Writes the file.
    /// - Throws: `storeWriteFailed`; the file is then unchanged.
    func write(_ bytes: [UInt8]) throws(ProviderError) {
        let file = try begin()
        let result = bytes.withUnsafeBytes { bytes in
            Result { () throws(ProviderError) in try file.append(bytes) }
        }
        try result.get()
        try file.finish()
    }

    /// Begins to write the file, which is not there before ``Unfinished/finish()``.
    /// - Throws: `storeWriteFailed`.
    func begin() throws(ProviderError) -> Unfinished {
        try check()
        let place: ReachedDirectory
        do throws(SafeDirectory.Refusal) {
            guard let reached = try ReachedDirectory.open(directory) else {
                throw SafeDirectory.Refusal(reason: errorText(ENOENT))
            }
            place = reached
        } catch {
            throw ProviderError(
                .storeWriteFailed, "\(path.withVisibleControls) cannot be written: \(error.reason.withVisibleControls)."
            )
        }
        var temporary: String?
        var descriptor = openat(place.descriptor, ".", O_WRONLY | O_CLOEXEC | Self.withoutName, 0o600)
        if descriptor < 0 {
            // NFS has no files without a name: there a kill leaves it.
            let name = Self.prefix + String(UInt64.random(in: .min ... .max), radix: 36)
            descriptor = openat(place.descriptor, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
            temporary = name
        }
        guard descriptor >= 0 else { throw failure(errno) }
        return Unfinished(self, place, temporary, descriptor)
    }

    /// O_TMPFILE, which Swift does not import.
    private static let withoutName: Int32 = 0o20_000_000 | O_DIRECTORY
    fileprivate static let prefix = ".certprov-"

    /// A file that is being written, without a name where the file system has such files. Gone with the last reference to it, and with
    /// the process, unless it is finished.
    final class Unfinished: Sendable {
        private let file: OutputFile
        /// The directory as it was found: another user who owns one above cannot lead elsewhere since.
        private let place: ReachedDirectory
        /// Its name; `nil` if it has none.
        private let temporary: String?
        private let descriptor: Int32

        fileprivate init(_ file: OutputFile, _ place: ReachedDirectory, _ temporary: String?, _ descriptor: Int32) {
            (self.file, self.place, self.temporary, self.descriptor) = (file, place, temporary, descriptor)
        }

        deinit {
            close(descriptor)
            // Gone already where it was renamed.
            if let temporary { unlinkat(place.descriptor, temporary, 0) }
        }

        /// Adds bytes.
        /// - Throws: `storeWriteFailed`.
        func append(_ bytes: UnsafeRawBufferPointer) throws(ProviderError) {
            var rest = bytes
            while !rest.isEmpty {
                let count = Glibc.write(descriptor, rest.baseAddress, rest.count)
                if count < 0 && errno == EINTR { continue }
                guard count > 0 else { throw file.failure(errno) }
                rest = UnsafeRawBufferPointer(rebasing: rest.dropFirst(count))
            }
        }

        /// Gives the file its name.
        /// - Throws: `storeWriteFailed`; what had the name is then unchanged.
        func finish() throws(ProviderError) {
            // Whatever the umask is.
            guard fchmod(descriptor, 0o644) == 0, fsync(descriptor) == 0 else { throw file.failure(errno) }
            // A hard link, unlike a rename, never replaces.
            let (directory, name) = (place.descriptor, file.name)
            guard file.replacing else {
                guard link(to: name) == 0 else { throw errno == EEXIST ? file.exists() : file.failure(errno) }
                return
            }
            let new = temporary ?? OutputFile.prefix + String(UInt64.random(in: .min ... .max), radix: 36)
            guard temporary != nil || link(to: new) == 0 else { throw file.failure(errno) }
            guard renameat(directory, new, directory, name) == 0 else {
                let code = errno
                unlinkat(directory, new, 0)
                throw file.failure(code)
            }
        }

        private func link(to name: String) -> Int32 {
            if let temporary { return linkat(place.descriptor, temporary, place.descriptor, name, 0) }
            return linkat(AT_FDCWD, "/proc/self/fd/\(descriptor)", place.descriptor, name, AT_SYMLINK_FOLLOW)
        }
    }

    private var name: String { String(path.split(separator: "/", omittingEmptySubsequences: false).last ?? "") }

    var directory: String {
        guard let slash = path.lastIndex(of: "/") else { return "." }
        return slash == path.startIndex ? "/" : String(path[..<slash])
    }

    fileprivate func exists() -> ProviderError {
        ProviderError(
            .storeWriteFailed, "\(path.withVisibleControls) exists already; use --force to replace it.")
    }

    fileprivate func failure(_ code: Int32) -> ProviderError {
        ProviderError(
            .storeWriteFailed, "\(path.withVisibleControls) cannot be written: \(errorText(code)).")
    }
}

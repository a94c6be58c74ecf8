public import CertificateProviding
import FoundationEssentials
import Glibc

/// Documents in files of mode 0600, by their digests, in a directory of mode 0700.
public struct DocumentDirectory: DocumentKeeping {
    /// Without a slash at its end.
    public let path: String
    /// How long work waits for the removal of documents.
    private let timeout: Duration
    private static let temporaryPrefix = ".new-"
    private static let lock = ".lock"

    /// - Parameters:
    ///   - path: Is made with its parents when something is stored.
    ///   - timeout: How long work waits while another process removes documents.
    public init(path: String, timeout: Duration = .seconds(10)) { (self.path, self.timeout) = (path, timeout) }

    public func path(of document: DocumentReference) -> String { "\(path)/\(document.sha256)" }

    // MARK: - Contents

    public func write(_ content: [UInt8]) throws(ProviderError) -> DocumentReference {
        let document = DocumentReference(of: content)
        let directory = try opened()
        defer { withExtendedLifetime(directory) {} }
        // One that is damaged is replaced.
        if (try? read(document)) == nil { try create(document.sha256, content, in: directory) }
        // Another writer may have stored it and been killed before this.
        guard fsync(directory.descriptor) == 0 else { throw writeFailure(path, errno) }
        return document
    }

    private func create(_ name: String, _ content: [UInt8], in directory: Descriptor) throws(ProviderError) {
        let temporary = "\(Self.temporaryPrefix)\(getpid())-\(UInt64.random(in: 0 ... .max))"
        let file = Descriptor(
            openat(directory.descriptor, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600))
        guard let file else { throw writeFailure(path, errno) }
        defer { withExtendedLifetime((file, directory)) {} }
        do throws(ProviderError) {
            var written = 0
            while written < content.count {
                let count = content.withUnsafeBytes {
                    Glibc.write(file.descriptor, $0.baseAddress?.advanced(by: written), content.count - written)
                }
                if count < 0 && errno == EINTR { continue }
                guard count > 0 else { throw writeFailure("\(path)/\(name)", count == 0 ? ENOSPC : errno) }
                written += count
            }
            // Whatever the umask is.
            guard fchmod(file.descriptor, 0o600) == 0, fsync(file.descriptor) == 0,
                renameat(directory.descriptor, temporary, directory.descriptor, name) == 0
            else { throw writeFailure("\(path)/\(name)", errno) }
        } catch {
            unlinkat(directory.descriptor, temporary, 0)
            throw error
        }
    }

    public func read(_ document: DocumentReference) throws(ProviderError) -> [UInt8] {
        guard let directory = try openedIfThere(), let file = try opened(document, in: directory) else {
            throw damaged(document, "is missing")
        }
        defer { withExtendedLifetime((file, directory)) {} }
        var status = stat()
        guard fstat(file.descriptor, &status) == 0 else { throw readFailure(path(of: document), errno) }
        guard status.st_mode & S_IFMT == S_IFREG, status.st_size == document.size else {
            throw damaged(document, "has not the size that it was stored with")
        }
        var code: Int32 = 0
        let content = [UInt8](unsafeUninitializedCapacity: document.size) { buffer, count in
            while count < document.size {
                let size = Glibc.read(file.descriptor, buffer.baseAddress?.advanced(by: count), document.size - count)
                if size < 0 && errno == EINTR { continue }
                if size < 0 { code = errno }
                guard size > 0 else { return }
                count += size
            }
        }
        guard code == 0 else { throw readFailure(path(of: document), code) }
        guard DocumentReference(of: content) == document else {
            throw damaged(document, "is not what was stored")
        }
        return content
    }

    public func contains(_ document: DocumentReference) throws(ProviderError) -> Bool {
        guard DocumentReference.isDigest(document.sha256), let directory = try openedIfThere() else { return false }
        defer { withExtendedLifetime(directory) {} }
        var status = stat()
        guard fstatat(directory.descriptor, document.sha256, &status, AT_SYMLINK_NOFOLLOW) == 0 else {
            guard errno == ENOENT else { throw readFailure(path(of: document), errno) }
            return false
        }
        return status.st_mode & S_IFMT == S_IFREG && status.st_size == document.size
    }

    public func remove(sha256 digest: String) throws(ProviderError) {
        guard DocumentReference.isDigest(digest), let directory = try openedIfThere() else { return }
        defer { withExtendedLifetime(directory) {} }
        guard unlinkat(directory.descriptor, digest, 0) == 0 || errno == ENOENT else {
            throw writeFailure("\(path)/\(digest)", errno)
        }
    }

    public func all() throws(ProviderError) -> [String] {
        guard try openedIfThere() != nil else { return [] }
        return try names().filter(DocumentReference.isDigest).sorted()
    }

    private func names() throws(ProviderError) -> [String] {
        do { return try FileManager.default.contentsOfDirectory(atPath: path) } catch {
            throw readFailure(path, errno)
        }
    }

    // MARK: - Locks

    public func whileKept<R>(
        _ body: () throws(ProviderError) -> R
    ) throws(ProviderError) -> R {
        let lock = try lockFile()
        let end = ContinuousClock.now + timeout
        while flock(lock.descriptor, LOCK_SH | LOCK_NB) != 0 {
            guard errno == EWOULDBLOCK || errno == EINTR else { throw writeFailure("\(path)/\(Self.lock)", errno) }
            guard ContinuousClock.now < end else {
                throw ProviderError(
                    .operationNotAllowed,
                    "Another process has removed documents from \(DisplayText.visible(path)) for \(timeout); try again.",
                    reason: .busy)
            }
            usleep(5000)
        }
        // Before it is closed: a process that another thread is about to start has the same open file for a moment.
        defer { flock(lock.descriptor, LOCK_UN) }
        return try body()
    }

    public func whileAlone<R>(
        _ body: () throws(ProviderError) -> R
    ) throws(ProviderError) -> R? {
        let lock = try lockFile()
        while flock(lock.descriptor, LOCK_EX | LOCK_NB) != 0 {
            if errno == EWOULDBLOCK { return nil }
            guard errno == EINTR else { throw writeFailure("\(path)/\(Self.lock)", errno) }
        }
        defer { flock(lock.descriptor, LOCK_UN) }
        try removeAbandonedFiles()
        return try body()
    }

    private func lockFile() throws(ProviderError) -> Descriptor {
        let directory = try opened()
        defer { withExtendedLifetime(directory) {} }
        // A disk that is full, or read-only by now, has it already.
        let file =
            Descriptor(openat(directory.descriptor, Self.lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW))
            ?? Descriptor(openat(directory.descriptor, Self.lock, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0o600))
        guard let file else { throw writeFailure("\(path)/\(Self.lock)", errno) }
        return file
    }

    /// Removes the files of writers that were killed.
    private func removeAbandonedFiles() throws(ProviderError) {
        guard let directory = try openedIfThere() else { return }
        defer { withExtendedLifetime(directory) {} }
        for name in try names() where name.hasPrefix(Self.temporaryPrefix) {
            unlinkat(directory.descriptor, name, 0)
        }
    }

    // MARK: - Files

    private final class Descriptor {
        let descriptor: Int32

        /// - Returns: `nil` for a negative number.
        init?(_ descriptor: Int32) {
            guard descriptor >= 0 else { return nil }
            self.descriptor = descriptor
        }

        deinit { close(descriptor) }
    }

    /// `nil` if there is no such file.
    private func opened(
        _ document: DocumentReference, in directory: Descriptor
    ) throws(ProviderError) -> Descriptor? {
        guard DocumentReference.isDigest(document.sha256) else { return nil }
        defer { withExtendedLifetime(directory) {} }
        let file = Descriptor(
            openat(directory.descriptor, document.sha256, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK))
        guard file != nil || errno == ENOENT else {
            if errno == ELOOP { throw damaged(document, "is a symbolic link") }
            throw readFailure(path(of: document), errno)
        }
        return file
    }

    private func openedIfThere() throws(ProviderError) -> Descriptor? {
        guard let directory = Descriptor(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)) else {
            guard errno == ENOENT else { throw readFailure(path, errno) }
            return nil
        }
        var status = stat()
        guard fstat(directory.descriptor, &status) == 0 else { throw readFailure(path, errno) }
        guard status.st_uid == geteuid() else {
            throw ProviderError(
                .storeReadFailed,
                "The directory \(DisplayText.visible(path)) belongs to the user with the number \(status.st_uid), and contracts runs as \(geteuid()); run it as that user, or change the owner."
            )
        }
        guard status.st_mode & 0o022 == 0 else {
            throw ProviderError(
                .storeReadFailed,
                "The directory \(DisplayText.visible(path)) is not only this user's to write to; look at its content, then run: chmod 700 \(DisplayText.shellQuoted(path))."
            )
        }
        return directory
    }

    private func opened() throws(ProviderError) -> Descriptor {
        if let directory = try openedIfThere() { return directory }
        var made = path.hasPrefix("/") ? "/" : "."
        for component in path.split(separator: "/") {
            let parent = made
            made += "/" + component
            if mkdir(made, 0o700) != 0 {
                guard errno == EEXIST else { throw writeFailure(made, errno) }
                continue
            }
            // Else a power failure might take the documents and leave the records that name them.
            guard let directory = Descriptor(open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) else {
                throw writeFailure(parent, errno)
            }
            defer { withExtendedLifetime(directory) {} }
            guard fsync(directory.descriptor) == 0 else { throw writeFailure(parent, errno) }
        }
        guard let directory = try openedIfThere() else { throw writeFailure(path, ENOENT) }
        return directory
    }

    // MARK: - Errors

    private func writeFailure(_ path: String, _ code: Int32) -> ProviderError {
        ProviderError(
            .storeWriteFailed,
            "\(DisplayText.visible(path)) cannot be written to: \(String(cString: strerror(code))). Nothing was changed."
        )
    }

    private func readFailure(_ path: String, _ code: Int32) -> ProviderError {
        ProviderError(
            .storeReadFailed, "\(DisplayText.visible(path)) cannot be read: \(String(cString: strerror(code))).")
    }

    private func damaged(_ document: DocumentReference, _ problem: String) -> ProviderError {
        ProviderError(
            .storeReadFailed,
            "The document \(DisplayText.visible(path(of: document))) \(problem). Restore it from a backup; what the server has comes back with: contracts sync --full.",
            reason: .damaged)
    }
}

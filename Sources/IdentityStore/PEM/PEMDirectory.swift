package import CertificateProviding
import Glibc
import SystemPackage

/// A directory of PEM files with an identity, for other programs.
///
///     DIR/current -> .set-1f3a…      a symbolic link, replaced by one rename
///     DIR/.set-1f3a…/                the files that belong together
///     DIR/.set-09bc…/                the previous set, for readers that still use it
///
/// A process that opens `current` once and reads the files from there gets one consistent set; so does one that opens
/// `identity.pem`, which contains key and chain, once. A crash at any point leaves the old or the new set.
package struct PEMDirectory {
    private static let setPrefix = ".set-"
    private static let link = "current"
    private let path: String
    private let files: FileSystem

    package init(path: String) { self.init(path: path, files: FileSystem()) }

    init(path: String, files: FileSystem) {
        // One form for messages and results; the root stays what it is.
        let trimmed = path.reversed().drop { $0 == "/" }.reversed()
        self.path = trimmed.isEmpty ? path : String(trimmed)
        self.files = files
    }

    /// Creates the directory unless it exists, and refuses one that cannot take a set: before an identity is obtained for it.
    ///
    /// - Throws: `storeWriteFailed`.
    package func prepare() throws(CertificateProviderError) {
        do throws(SafeDirectory.Refusal) { _ = try target(try open()) } catch { throw notWritten(error) }
    }

    /// Writes a set of files and points `current` to it. If `current` already has the same content, nothing is written,
    /// so that a program that watches the link is notified of changes only. The directory has events of its own, such as those of its lock.
    ///
    /// A program may read the key of `current`: a set without a key gets that one, if it is the key of the new certificate.
    ///
    /// - Returns: The paths of the files, in `current`.
    /// - Throws: `storeWriteFailed`, also for a set without a key in place of one with another key; `current` is then
    ///   unchanged.
    package func write(_ set: PEMFiles) throws(CertificateProviderError) -> [String] {
        let written: PEMFiles
        do throws(SafeDirectory.Refusal) {
            let directory = try open()
            let lock = try StoreLock(in: directory, timeout: StoreLock.timeout, files)
            defer { withExtendedLifetime(lock) {} }
            written = try write(set, directory)
        } catch {
            throw notWritten(error)
        }
        return written.files.map { "\(path)/\(Self.link)/\($0.name)" }
    }

    private func notWritten(_ refusal: SafeDirectory.Refusal) -> CertificateProviderError {
        refusal.error(
            .storeWriteFailed,
            "The identity was not written, and \(Self.link) is unchanged: \(refusal.reason.withVisibleControls).")
    }

    private func open() throws(SafeDirectory.Refusal) -> SafeDirectory {
        try SafeDirectory.make(path, mode: 0o755, files)
        guard let directory = try SafeDirectory.open(path) else {
            throw SafeDirectory.Refusal(reason: "\(path) was removed by another process")
        }
        return directory
    }

    /// - Returns: The files of `current`, with the key that it had.
    private func write(_ set: PEMFiles, _ directory: SafeDirectory) throws(SafeDirectory.Refusal) -> PEMFiles {
        let current = try target(directory)
        let set =
            try current.map { name throws(SafeDirectory.Refusal) in try keepingKey(set, of: name, directory) } ?? set
        if let current, isSame(set, as: current, directory) { return set }
        // The remains of a crash, and all sets but the one that readers may still be in.
        removeSets(directory, except: current)
        let name = Self.setPrefix + String(UInt64.random(in: .min ... .max), radix: 36)
        do throws(SafeDirectory.Refusal) {
            let target = try directory.create(name, files)
            for file in set.files { try target.createFile(file.name, file.content, mode: file.mode, files) }
            // The certificates are for all users who may enter DIR, the key is for its owner.
            guard files.changeMode(target.descriptor, 0o755) == 0, files.synchronize(target.descriptor) == 0 else {
                throw target.failure("\(target.path) cannot be flushed to disk")
            }
            try switchLink(from: current, to: name, directory)
            return set
        } catch {
            // The switch may have happened, with its flushing and its taking back failed.
            removeSets(directory, except: current, try? target(directory))
            throw error
        }
    }

    /// Returns the name of the set that `current` points to; `nil` if `current` does not exist.
    private func target(_ directory: SafeDirectory) throws(SafeDirectory.Refusal) -> String? {
        var buffer = [CChar](repeating: 0, count: 256)
        let count = readlinkat(directory.descriptor, Self.link, &buffer, buffer.count)
        if count < 0 && errno == ENOENT { return nil }
        let target = String(decoding: buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
        guard target.hasPrefix(Self.setPrefix), !target.contains("/") else {
            throw SafeDirectory.Refusal(
                reason: "\(path)/\(Self.link) was not written by certprov; move it aside, or use another directory")
        }
        return target
    }

    /// Returns the set with the key of the current one.
    ///
    /// - Throws: If the current one has a key, and the set has none and is of another key.
    private func keepingKey(
        _ set: PEMFiles, of current: String, _ directory: SafeDirectory
    ) throws(SafeDirectory.Refusal) -> PEMFiles {
        guard !set.hasKey, let existing = try directory.directory(current),
            try existing.entries().contains(where: PEMFiles.namesWithKey.contains)
        else { return set }
        let key = read(PEMFiles.namesWithKey[0], in: existing, atMost: PEMFiles.maximumKeySize)
        if let kept = key.flatMap({ set.withKey($0.content) }) { return kept }
        throw SafeDirectory.Refusal(
            reason:
                "the programs that read it would be without a private key, since \(path)/\(Self.link) has that of another "
                + "certificate; add --export-key, or name another directory with --out")
    }

    private func isSame(_ set: PEMFiles, as current: String, _ directory: SafeDirectory) -> Bool {
        guard let existing = try? directory.directory(current),
            let names = try? existing.entries(), names.sorted() == set.files.map(\.name).sorted()
        else { return false }
        return set.files.allSatisfy { file in
            guard let found = read(file.name, in: existing, atMost: file.content.count) else { return false }
            return found.mode == file.mode && found.content == file.content
        }
    }

    /// Returns a file of a set with its mode, whatever that is; `nil` if it cannot be read.
    private func read(
        _ name: String, in set: SafeDirectory, atMost limit: Int
    ) -> (content: [UInt8], mode: UInt32)? {
        let descriptor = openat(set.descriptor, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        let open = FileDescriptor(rawValue: descriptor)
        guard let mode = try? open.stat().permissions.rawValue,
            let content = try? RegularFile.read(open, atMost: limit)
        else { return nil }
        return (content, mode)
    }

    private func switchLink(
        from current: String?, to name: String, _ directory: SafeDirectory
    ) throws(SafeDirectory.Refusal) {
        try pointLink(to: name, directory)
        guard files.synchronize(directory.descriptor) == 0 else {
            let failure = directory.failure("\(path)/\(Self.link) cannot be replaced")
            if let current {
                try? pointLink(to: current, directory)
            } else {
                _ = files.unlink(directory.descriptor, Self.link)
            }
            throw failure
        }
    }

    private func pointLink(to name: String, _ directory: SafeDirectory) throws(SafeDirectory.Refusal) {
        let temporary = name + ".link"
        guard files.symbolicLink(name, directory.descriptor, temporary) == 0 else {
            throw directory.failure("\(path) cannot be written to")
        }
        guard files.rename(directory.descriptor, temporary, Self.link) == 0 else {
            throw directory.failure("\(path)/\(Self.link) cannot be replaced")
        }
    }

    private func removeSets(_ directory: SafeDirectory, except kept: String?...) {
        for name in (try? directory.entries()) ?? [] where name.hasPrefix(Self.setPrefix) && !kept.contains(name) {
            if let set = try? directory.directory(name) {
                for file in (try? set.entries()) ?? [] { _ = files.unlink(set.descriptor, file) }
                _ = files.removeDirectory(directory.descriptor, name)
            } else {
                _ = files.unlink(directory.descriptor, name)
            }
        }
    }
}

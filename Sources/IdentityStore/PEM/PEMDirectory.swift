package import CertificateProviding
import Glibc
import SystemPackage

/// A directory of PEM files with an identity, for other programs.
///
///     DIR/current -> .set-1f3a…      a symbolic link, replaced by one rename
///     DIR/.set-1f3a…/                the files that belong together
///     DIR/.set-09bc…/                the previous set, for readers that still use it
///
/// A process that opens `current` once and reads the files from there gets one consistent set; so does one that reads
/// `identity.pem`, which contains key and chain. A crash at any point leaves the old or the new set.
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
    /// - Returns: The paths of the files, in `current`.
    /// - Throws: `storeWriteFailed`; `current` is then unchanged.
    package func write(_ set: PEMFiles) throws(CertificateProviderError) -> [String] {
        do throws(SafeDirectory.Refusal) {
            let directory = try open()
            let lock = try StoreLock(in: directory, timeout: StoreLock.timeout, files)
            defer { withExtendedLifetime(lock) {} }
            try write(set, directory)
        } catch {
            throw notWritten(error)
        }
        return set.files.map { "\(path)/\(Self.link)/\($0.name)" }
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

    private func write(_ set: PEMFiles, _ directory: SafeDirectory) throws(SafeDirectory.Refusal) {
        let current = try target(directory)
        // Who does not export the key any more would not look for it beside the current set.
        defer { if !set.hasKey { removeKeys(directory) } }
        if let current, isSame(set, as: current, directory) { return }
        // What a crash left, and all sets but the one that readers may still be in.
        removeSets(directory, except: current)
        let name = Self.setPrefix + String(UInt64.random(in: .min ... .max), radix: 36)
        do throws(SafeDirectory.Refusal) {
            let target = try directory.create(name, files)
            for file in set.files { try target.createFile(file.name, file.content, mode: file.mode, files) }
            // The certificates are for everybody who may enter DIR, the key is for its owner.
            guard files.changeMode(target.descriptor, 0o755) == 0, files.synchronize(target.descriptor) == 0 else {
                throw target.failure("\(target.path) cannot be flushed to disk")
            }
            try switchLink(from: current, to: name, directory)
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

    private func isSame(_ set: PEMFiles, as current: String, _ directory: SafeDirectory) -> Bool {
        guard let existing = try? directory.directory(current),
            let names = try? existing.entries(), names.sorted() == set.files.map(\.name).sorted()
        else { return false }
        return set.files.allSatisfy { file in
            let descriptor = openat(existing.descriptor, file.name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
            guard descriptor >= 0 else { return false }
            defer { close(descriptor) }
            let open = FileDescriptor(rawValue: descriptor)
            guard let mode = try? open.stat().permissions.rawValue else { return false }
            return mode == file.mode
                && (try? RegularFile.read(open, atMost: file.content.count)) == file.content
        }
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

    /// Removes the files with the private key from all sets but the current one, as far as possible.
    private func removeKeys(_ directory: SafeDirectory) {
        guard let current = try? target(directory) else { return }
        for name in (try? directory.entries()) ?? [] where name.hasPrefix(Self.setPrefix) && name != current {
            guard let set = try? directory.directory(name) else { continue }
            for file in PEMFiles.namesWithKey { _ = files.unlink(set.descriptor, file) }
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

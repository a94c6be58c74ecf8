package import CertificateProviding
import Glibc
import IdentityStore
import SystemPackage

/// A directory of PEM files with an identity, for other programs.
///
///     DIR/current -> .set-1f3a…      a symbolic link, replaced by one rename
///     DIR/.set-1f3a…/                the files that belong together
///     DIR/.set-09bc…/                the previous set, for readers that still use it
///
/// A process that opens `current` once and reads the files from there gets one consistent set; so does one that opens
/// `identity.pem`, which contains key and chain, once. A crash at any point leaves the old or the new set.
package struct FileSetDirectory {
    private static let setPrefix = ".set-"
    static let link = "current"
    /// Points to the set that programs have not been notified of yet.
    private static let notNotifiedLink = ".reload"
    private let path: String
    private let permissions: FilePermissions
    private let files: FileSystem

    package init(path: String, permissions: FilePermissions = FilePermissions()) {
        self.init(path: path, permissions: permissions, files: FileSystem.system)
    }

    init(path: String, permissions: FilePermissions = FilePermissions(), files: FileSystem) {
        self.permissions = permissions
        // One form for messages and results; the root stays what it is.
        let trimmed = path.reversed().drop { $0 == "/" }.reversed()
        self.path = trimmed.isEmpty ? path : String(trimmed)
        self.files = files
    }

    /// Creates the directory unless it exists, and refuses one that cannot take a set: before an identity is obtained for it.
    ///
    /// - Throws: `storeWriteFailed`.
    package func prepare(forAnotherKey: Bool = false) throws(ProviderError) {
        do throws(SafeDirectory.Refusal) {
            let directory = try open()
            guard let current = try target(directory), forAnotherKey, let existing = try directory.directory(current),
                let name = try nameWithKey(existing)
            else { return }
            throw withoutKey(name)
        } catch { throw notWritten(error) }
    }

    /// Writes a set of files and points `current` to it. If `current` already has the same content, nothing is written,
    /// so that a program that watches the link is notified of changes only. The directory has events of its own, such as those of its lock.
    ///
    /// A program may read the key of `current`: a set without a key gets that one, if it is the key of the new certificate. A set
    /// without a trust bundle gets that of `current`: the source may be without one for a while.
    ///
    /// - Parameter notifies: Whether programs are to be notified of a new set, by ``notify(_:)``.
    /// - Returns: The paths of the files, in `current`.
    /// - Throws: `storeWriteFailed`, also for a set without a key in place of one with another key; `current` is then
    ///   unchanged.
    package func write(
        _ set: FileSet, notifies: Bool = false
    ) throws(ProviderError) -> [String] {
        // Also where nothing can be written, such as on a read-only file system.
        if let current = try? current(set) { return paths(of: current) }
        let written: FileSet
        do throws(SafeDirectory.Refusal) {
            written = try locked { directory throws(SafeDirectory.Refusal) in
                try write(set, directory, notifies: notifies)
            }
        } catch {
            throw notWritten(error)
        }
        return paths(of: written)
    }

    private func paths(of set: FileSet) -> [String] { set.files.map { "\(path)/\(Self.link)/\($0.name)" } }

    /// Whether `current` has this set, as it should be.
    ///
    /// - Throws: `storeReadFailed`.
    package func holds(_ set: FileSet) throws(ProviderError) -> Bool {
        do throws(SafeDirectory.Refusal) { return try current(set) != nil } catch {
            throw error.error(.storeReadFailed, "The files of the identity: \(error.reason.withVisibleControls).")
        }
    }

    /// Returns the set with what it keeps of `current`, if that is `current`.
    private func current(_ set: FileSet) throws(SafeDirectory.Refusal) -> FileSet? {
        guard let directory = try SafeDirectory.open(path), let current = try target(directory),
            let existing = try directory.directory(current)
        else { return nil }
        let set = try keeping(set, of: existing)
        return isSame(set, as: existing) ? set : nil
    }

    /// Checks that a set could be written, with a file that has no name and leaves nothing behind.
    ///
    /// - Parameter isCurrent: Whether the files are as they should be: then only a full file system counts, on which the next renewal
    ///   would fail.
    /// - Throws: `storeWriteFailed`.
    package func checkWritable(isCurrent: Bool = false) throws(ProviderError) {
        do throws(SafeDirectory.Refusal) {
            if !isCurrent { try permissions.check(path) }
            let directory = try SafeDirectory.open(path)
            if let directory { _ = try target(directory) }
            let parent = FilePath(path).removingLastComponent()
            guard let code = files.tryWrite(in: directory?.path ?? (parent.isEmpty ? "." : parent.string)),
                !isCurrent || FileSystem.isFull(code)
            else { return }
            throw SafeDirectory.Refusal(
                reason: "\(path) cannot be \(directory == nil ? "created" : "written to"): \(errorText(code))"
                    + (FileSystem.isFull(code) ? "; free some space there" : ""))
        } catch { throw notWritten(error) }
    }

    /// Notifies programs of the set that they have not been notified of; does nothing without one. A failure, or a kill, is left
    /// to the next call.
    ///
    /// - Throws: Errors of `notify`, and `storeWriteFailed`.
    package func notify(_ notify: () throws(ProviderError) -> Void) throws(ProviderError) {
        guard let notNotified else { return }
        try notify()
        do throws(SafeDirectory.Refusal) {
            try locked { directory throws(SafeDirectory.Refusal) in
                // Another process may have written a set since.
                guard self.notNotified == notNotified else { return }
                try directory.remove(Self.notNotifiedLink, files)
            }
        } catch {
            throw error.error(
                .storeWriteFailed,
                "Programs were notified of \(path)/\(Self.link), which could not be recorded: \(error.reason.withVisibleControls)."
            )
        }
    }

    /// The set that programs have not been notified of; `nil` if there is none.
    package var notNotified: String? {
        Self.link("\(path)/\(Self.notNotifiedLink)", in: AT_FDCWD)
    }

    private func locked<T>(
        _ body: (SafeDirectory) throws(SafeDirectory.Refusal) -> T
    ) throws(SafeDirectory.Refusal) -> T {
        let directory = try open()
        let lock = try StoreLock(in: directory, timeout: StoreLock.timeout, files)
        defer { withExtendedLifetime(lock) {} }
        return try body(directory)
    }

    private func notWritten(_ refusal: SafeDirectory.Refusal) -> ProviderError {
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

    /// Returns the certificates that `current` shows: its chain, or the leaf alone; none if there is no file of them that can be read.
    func chain() -> (certificates: [X509Certificate], isLeafAlone: Bool) {
        guard let directory = try? SafeDirectory.open(path), let current = try? target(directory),
            let existing = try? directory.directory(current)
        else { return ([], false) }
        if let file = read(FileSet.chainName, in: existing),
            let chain = try? PEMFile(file.content, named: FileSet.chainName).certificates(), !chain.isEmpty
        {
            return (chain, false)
        }
        let leaf = read(FileSet.certificateDERName, in: existing)
            .flatMap { try? X509Certificate(derRepresentation: $0.content) }
        return (leaf.map { [$0] } ?? [], true)
    }

    /// - Returns: The files of `current`, with the key and the trust bundle that it had.
    private func write(
        _ set: FileSet, _ directory: SafeDirectory, notifies: Bool
    ) throws(SafeDirectory.Refusal) -> FileSet {
        let current = try target(directory)
        let existing = try current.map { name throws(SafeDirectory.Refusal) in try directory.directory(name) } ?? nil
        let set = try existing.map { old throws(SafeDirectory.Refusal) in try keeping(set, of: old) } ?? set
        if let existing, isSame(set, as: existing) { return set }
        // The remains of a crash, and all sets but the one that readers may still be in.
        removeSets(directory, except: current)
        let name = Self.setPrefix + String(UInt64.random(in: .min ... .max), radix: 36)
        do throws(SafeDirectory.Refusal) {
            let target = try directory.create(name, files)
            for file in set.files {
                let new = permissions.new(
                    replacing: existing.flatMap { read(file.name, in: $0) }, hasKey: file.hasKey)
                try target.createFile(
                    file.name, file.content, mode: new.mode, owner: new.owner, group: new.group,
                    accessList: new.list?.bytes, files)
            }
            // The certificates are for all users who may enter DIR, the key is for its owner.
            guard files.changeMode(target.descriptor, 0o755) == 0, files.synchronize(target.descriptor) == 0 else {
                throw target.failure("\(target.path) cannot be flushed to disk")
            }
            // Before the switch: after a kill between them, programs are notified once too often.
            if notifies { try point(Self.notNotifiedLink, to: name, directory) }
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
        guard let target = Self.link(Self.link, in: directory.descriptor) else { return nil }
        guard target.hasPrefix(Self.setPrefix), !target.contains("/") else {
            throw SafeDirectory.Refusal(
                reason: "\(path)/\(Self.link) was not written by certprov; move it aside, or use another directory")
        }
        return target
    }

    /// Returns what a link points to; `nil` if it does not exist, blank if it is none.
    private static func link(_ name: String, in directory: Int32) -> String? {
        var buffer = [CChar](repeating: 0, count: 256)
        let count = readlinkat(directory, name, &buffer, buffer.count)
        if count < 0 && errno == ENOENT { return nil }
        return String(decoding: buffer.prefix(max(0, count)).map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// Returns the set with the key and the trust bundle of the current one, where it has none.
    private func keeping(
        _ set: FileSet, of existing: SafeDirectory
    ) throws(SafeDirectory.Refusal) -> FileSet {
        let set = try keepingKey(set, of: existing)
        return read(FileSet.trustName, in: existing).map { set.withTrust(from: $0.content) } ?? set
    }

    /// Returns the set with the key of the current one.
    ///
    /// - Throws: If the current one has a key, and the set has none and is of another key.
    private func keepingKey(
        _ set: FileSet, of existing: SafeDirectory
    ) throws(SafeDirectory.Refusal) -> FileSet {
        guard !set.hasKey, let name = try nameWithKey(existing) else { return set }
        if let kept = read(name, in: existing).flatMap({ set.withKey(from: $0.content) }) { return kept }
        throw withoutKey(name)
    }

    /// Returns the name of a file with the private key; `nil` if the set has none.
    private func nameWithKey(_ existing: SafeDirectory) throws(SafeDirectory.Refusal) -> String? {
        let names = try existing.entries()
        return FileSet.namesWithKey.first(where: names.contains)
    }

    /// Returns the refusal of a set without a key in place of one with another key.
    private func withoutKey(_ name: String) -> SafeDirectory.Refusal {
        SafeDirectory.Refusal(
            reason: name == FileSet.pkcs12Name
                ? "\(path)/\(Self.link) has its private key in \(name) alone, whose password is not given; add --export-key "
                    + "--format pkcs12, or name another directory"
                : "the programs that read it would be without a private key, since \(path)/\(Self.link) has that of another "
                    + "certificate; add --export-key (Files.key = true), or name another directory")
    }

    private func isSame(_ set: FileSet, as existing: SafeDirectory) -> Bool {
        guard let names = try? existing.entries(), names.sorted() == set.files.map(\.name).sorted() else {
            return false
        }
        return set.files.allSatisfy { file in
            guard let found = read(file.name, in: existing), permissions.allow(found, hasKey: file.hasKey) else {
                return false
            }
            return found.content == file.content || file.isEquivalent(found.content)
        }
    }

    /// Returns a file of a set; `nil` if it cannot be read.
    private func read(_ name: String, in set: SafeDirectory) -> FileState? {
        let descriptor = openat(set.descriptor, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        let open = FileDescriptor(rawValue: descriptor)
        guard let status = try? open.stat(), let content = try? RegularFile.read(open, atMost: Self.maximumSize) else {
            return nil
        }
        return FileState(
            content: content, mode: status.permissions.rawValue, owner: status.userID.rawValue,
            group: status.groupID.rawValue, accessList: AccessList(of: descriptor))
    }

    /// A trust bundle of the largest file that is read, in lines of another length.
    private static let maximumSize = 2 * PEMFile.maximumSize

    private func switchLink(
        from current: String?, to name: String, _ directory: SafeDirectory
    ) throws(SafeDirectory.Refusal) {
        try point(Self.link, to: name, directory)
        guard files.synchronize(directory.descriptor) == 0 else {
            let failure = directory.failure("\(path)/\(Self.link) cannot be replaced")
            if let current {
                try? point(Self.link, to: current, directory)
            } else {
                _ = files.unlink(directory.descriptor, Self.link)
            }
            throw failure
        }
    }

    private func point(_ link: String, to name: String, _ directory: SafeDirectory) throws(SafeDirectory.Refusal) {
        let temporary = name + ".link"
        guard files.symbolicLink(name, directory.descriptor, temporary) == 0 else {
            throw directory.failure("\(path) cannot be written to")
        }
        guard files.rename(directory.descriptor, temporary, link) == 0 else {
            throw directory.failure("\(path)/\(link) cannot be replaced")
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

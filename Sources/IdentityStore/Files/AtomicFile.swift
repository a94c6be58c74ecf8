import CertificateProviding
package import Glibc
import SystemPackage

extension SafeDirectory {
    /// The prefix of temporary files.
    static let temporaryPrefix = ".tmp-"
    /// The new content of a file until it is complete. Writers hold the lock, so that all have the same name; a crash may leave
    /// it behind, and the next writer removes it.
    private static let new = temporaryPrefix + "new"
    /// As `new`, for the content before, until the new one is on disk.
    private static let previous = temporaryPrefix + "previous"

    /// Reads the whole file `name`; `nil` if it does not exist.
    package func read(_ name: String, atMost limit: Int) throws(Refusal) -> [UInt8]? {
        guard let file = try openFile(name) else { return nil }
        defer { close(file) }
        do throws(RegularFile.Failure) {
            return try RegularFile.read(FileDescriptor(rawValue: file), atMost: limit)
        } catch {
            let advice = if case .tooLarge = error { "; restore it, or move it aside" } else { "" }
            throw Refusal(reason: "\(path)/\(name) cannot be read: \(error)\(advice)")
        }
    }

    /// Writes `bytes` to the file `name` atomically: after a crash at any moment, the file has the old or the new
    /// content.
    ///
    /// If `replacing` is false, an existing file stays unchanged: of several processes, the first one wins. Call it
    /// only with the store's lock held, because it removes the temporary files of writers that died.
    func write(_ bytes: [UInt8], to name: String, replacing: Bool, _ files: FileSystem) throws(Refusal) {
        removeAbandonedFiles(files)
        var isPending = true
        defer { if isPending { _ = files.unlink(descriptor, Self.new) } }
        try createFile(Self.new, bytes, files)
        if replacing {
            try replace(name, files)
            isPending = false
        } else {
            // A hard link, unlike a rename, never replaces.
            guard files.link(descriptor, Self.new, name) == 0 || errno == EEXIST else {
                throw failure("\(path)/\(name) cannot be created")
            }
            try flush(files)
        }
    }

    /// Renames the new file to `name` and flushes the directory. If the flush fails, `name` is restored: a caller that
    /// gets an error must not find the new file there.
    private func replace(_ name: String, _ files: FileSystem) throws(Refusal) {
        let isReplacing = files.link(descriptor, name, Self.previous) == 0
        guard isReplacing || errno == ENOENT else { throw failure("\(path)/\(name) cannot be replaced") }
        defer { if isReplacing { _ = files.unlink(descriptor, Self.previous) } }
        guard files.rename(descriptor, Self.new, name) == 0 else {
            throw failure("\(path)/\(name) cannot be replaced")
        }
        guard files.synchronize(descriptor) == 0 else {
            let failure = failure("\(path) cannot be flushed to disk")
            _ = isReplacing ? files.rename(descriptor, Self.previous, name) : files.unlink(descriptor, name)
            throw failure
        }
    }

    /// Creates the file `name`, which must not exist, and flushes it. Only its owner has access until it is complete.
    ///
    /// - Parameters:
    ///   - owner: `nil` for that of the process.
    ///   - group: `nil` for that of a new file: of the process, or of a directory that hands its group on (setgid).
    ///   - accessList: The rights of further users and groups, as the kernel has them; `mode` bounds them.
    package func createFile(
        _ name: String, _ bytes: [UInt8], mode: mode_t = 0o600, owner: UInt32? = nil, group: UInt32? = nil,
        accessList: [UInt8]? = nil, _ files: FileSystem
    ) throws(Refusal) {
        let file = files.create(descriptor, name, O_WRONLY | O_EXCL)
        guard file >= 0 else { throw failure("\(path) cannot be written to") }
        defer { close(file) }
        try write(bytes, to: file, files)
        // Before the mode: a group that is to read the key is not the one that the file has.
        let own = try? FileDescriptor(rawValue: file).stat()
        let (owner, group) = (
            owner == own?.userID.rawValue ? nil : owner, group == own?.groupID.rawValue ? nil : group
        )
        if owner != nil || group != nil, files.changeOwner(file, owner ?? .max, group ?? .max) != 0 {
            let refused = failure(
                "\(path)/\(name) cannot get \(owner.map { "the owner \($0)" } ?? "")\(owner != nil && group != nil ? " and " : "")"
                    + "\(group.map { "the group \($0)" } ?? "")")
            throw Refusal(
                reason: refused.reason
                    + "; this takes the capability CAP_CHOWN, or for a group its membership, and in a systemd unit PrivateUsers=no, "
                    + "CapabilityBoundingSet=CAP_CHOWN CAP_FOWNER CAP_DAC_READ_SEARCH and SystemCallFilter=@chown")
        }
        if let accessList, files.changeAccessList(file, accessList) != 0 {
            throw failure(
                "\(path)/\(name) cannot get the access control list of the file before (to do without it, remove it there: setfacl -b)"
            )
        }
        // Whatever the umask is.
        guard files.changeMode(file, mode) == 0, files.synchronize(file) == 0 else {
            throw failure("\(path)/\(name) cannot be flushed to disk")
        }
    }

    /// Overwrites the file `name` in place and flushes it. Returns false, and changes nothing, if it does not exist or has another
    /// size. Not atomic, unless all bytes are in one sector of the disk.
    func overwrite(_ name: String, with bytes: [UInt8], _ files: FileSystem) throws(Refusal) -> Bool {
        guard try read(name, atMost: bytes.count)?.count == bytes.count else { return false }
        let file = files.create(descriptor, name, O_WRONLY)
        guard file >= 0 else { throw failure("\(path)/\(name) cannot be opened") }
        defer { close(file) }
        try write(bytes, to: file, files)
        guard files.synchronize(file) == 0 else { throw failure("\(path)/\(name) cannot be flushed to disk") }
        return true
    }

    /// Writes all bytes at the file's current position.
    package func write(_ bytes: [UInt8], to file: Int32, _ files: FileSystem) throws(Refusal) {
        var remaining = bytes[...]
        while !remaining.isEmpty {
            let count = remaining.withUnsafeBytes { files.write(file, $0) }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { throw failure("\(path) cannot be written to") }
            remaining = remaining.dropFirst(count)
        }
    }

    /// Removes the file `name`, if it exists. The caller must flush the directory.
    package func remove(_ name: String, _ files: FileSystem) throws(Refusal) {
        guard files.unlink(descriptor, name) == 0 || errno == ENOENT else {
            throw failure("\(path)/\(name) cannot be removed")
        }
    }

    package func flush(_ files: FileSystem) throws(Refusal) {
        guard files.synchronize(descriptor) == 0 else { throw failure("\(path) cannot be flushed to disk") }
    }

    package func failure(_ what: String) -> Refusal {
        let code = errno
        // The units of the package, and those of careful administrators, see all else read-only.
        let step = code == EROFS ? "; in a systemd unit this takes ReadWritePaths=\(path)" : ""
        return Refusal(reason: "\(what): \(errorText(code))\(step)")
    }

    /// Removes the temporary files of writers that died, as far as possible. Call it with the store's lock held.
    func removeAbandonedFiles(_ files: FileSystem) {
        for name in [Self.new, Self.previous] { _ = files.unlink(descriptor, name) }
    }

    /// Returns the temporary files of writers that died; without the store's lock also those of an active
    /// writer.
    func abandonedFiles() throws(Refusal) -> [String] {
        try entries().filter { $0.hasPrefix(Self.temporaryPrefix) }
    }

    /// Returns the names in the directory, without `.` and `..`.
    package func entries() throws(Refusal) -> [String] {
        let copy = openat(descriptor, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard copy >= 0 else { throw failure("\(path) cannot be listed") }
        guard let stream = fdopendir(copy) else {
            close(copy)
            throw failure("\(path) cannot be listed")
        }
        defer { closedir(stream) }
        var names: [String] = []
        while let entry = readdir(stream) {
            let name = withUnsafeBytes(of: &entry.pointee.d_name) {
                String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != "." && name != ".." { names.append(name) }
        }
        return names
    }
}

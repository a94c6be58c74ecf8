import CertificateProviding
import Glibc
import SystemPackage

extension SafeDirectory {
    /// What a temporary file's name begins with. A crash leaves one behind; the next writer removes it.
    static let temporaryPrefix = ".tmp-"

    /// Reads the whole file `name`, or returns `nil` when there is none.
    func read(_ name: String, atMost limit: Int) throws(Refusal) -> [UInt8]? {
        guard let file = try openFile(name) else { return nil }
        defer { close(file) }
        do throws(RegularFile.Failure) {
            return try RegularFile.read(FileDescriptor(rawValue: file), atMost: limit)
        } catch {
            throw Refusal(reason: "\(path)/\(name) cannot be read: \(error)")
        }
    }

    /// Puts `bytes` into the file `name`: after a crash at any moment the file is the old or the new one, whole.
    ///
    /// With `replacing` false an existing file stays as it is: of several processes, the first one wins.
    /// Only the holder of the store's lock may call this, because it removes the temporary files of writers that died.
    func write(_ bytes: [UInt8], to name: String, replacing: Bool, _ files: FileSystem) throws(Refusal) {
        removeAbandonedFiles(files)
        let temporary = Self.temporaryPrefix + String(UInt64.random(in: .min ... .max), radix: 36)
        var isPending = true
        defer { if isPending { _ = files.unlink(descriptor, temporary) } }
        try createFile(temporary, bytes, files)
        if replacing {
            try replace(name, with: temporary, files)
            isPending = false
        } else {
            // A hard link, unlike a rename, never replaces.
            guard files.link(descriptor, temporary, name) == 0 || errno == EEXIST else {
                throw failure("\(path)/\(name) cannot be put in place")
            }
            try flush(files)
        }
    }

    /// Renames `temporary` to `name` and flushes that. Where the flushing fails, `name` is again what it was: a caller
    /// who is told that nothing was stored must not find the new file there.
    private func replace(_ name: String, with temporary: String, _ files: FileSystem) throws(Refusal) {
        let previous = temporary + "-previous"
        let isReplacing = files.link(descriptor, name, previous) == 0
        guard isReplacing || errno == ENOENT else { throw failure("\(path)/\(name) cannot be put in place") }
        defer { if isReplacing { _ = files.unlink(descriptor, previous) } }
        guard files.rename(descriptor, temporary, name) == 0 else {
            throw failure("\(path)/\(name) cannot be put in place")
        }
        guard files.synchronize(descriptor) == 0 else {
            let failure = failure("\(path) cannot be flushed")
            _ = isReplacing ? files.rename(descriptor, previous, name) : files.unlink(descriptor, name)
            throw failure
        }
    }

    /// Makes the file `name`, which must not exist, and flushes it. For its owner alone until it is complete.
    func createFile(
        _ name: String, _ bytes: [UInt8], mode: mode_t = 0o600, _ files: FileSystem
    ) throws(Refusal) {
        let file = files.create(descriptor, name, O_WRONLY | O_EXCL)
        guard file >= 0 else { throw failure("\(path) cannot be written to") }
        defer { close(file) }
        var remaining = bytes[...]
        while !remaining.isEmpty {
            let count = remaining.withUnsafeBytes { files.write(file, $0) }
            if count < 0 && errno == EINTR { continue }
            guard count > 0 else { throw failure("\(path) cannot be written to") }
            remaining = remaining.dropFirst(count)
        }
        // Whatever the umask is.
        guard files.changeMode(file, mode) == 0, files.synchronize(file) == 0 else {
            throw failure("\(path)/\(name) cannot be flushed")
        }
    }

    /// Removes the file `name`, if there is one. Flushing is left to the caller.
    func remove(_ name: String, _ files: FileSystem) throws(Refusal) {
        guard files.unlink(descriptor, name) == 0 || errno == ENOENT else {
            throw failure("\(path)/\(name) cannot be removed")
        }
    }

    func flush(_ files: FileSystem) throws(Refusal) {
        guard files.synchronize(descriptor) == 0 else { throw failure("\(path) cannot be flushed") }
    }

    func failure(_ what: String) -> Refusal { Refusal(reason: "\(what): \(errorText(errno))") }

    /// Removes what writers that died have left, as far as that is possible. Under the store's lock.
    func removeAbandonedFiles(_ files: FileSystem) {
        for name in (try? abandonedFiles()) ?? [] { _ = files.unlink(descriptor, name) }
    }

    /// What writers that died have left; without the store's lock also what one is writing now.
    func abandonedFiles() throws(Refusal) -> [String] {
        try entries().filter { $0.hasPrefix(Self.temporaryPrefix) }
    }

    /// The names in the directory, without `.` and `..`.
    func entries() throws(Refusal) -> [String] {
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

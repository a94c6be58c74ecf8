import Glibc
package import SystemPackage

/// Reads whole regular files of a bounded size. Refuses other files without waiting for them.
public enum RegularFile {
    /// The reason why a file was not read. The description completes a sentence such as "… cannot be used: ".
    public enum Failure: Error, Sendable, CustomStringConvertible {
        /// A system call failed, with this `errno`.
        case systemCall(Int32)
        /// The path is not a regular file; the value names its type.
        case notRegular(String)
        /// The file is larger than `limit` bytes.
        case tooLarge(Int64, limit: Int)

        public var description: String {
            switch self {
            case .systemCall(let code): "\(Errno(rawValue: code))"
            case .notRegular(let kind): "it is \(kind), not a regular file"
            case .tooLarge(let size, let limit): "it has \(size) bytes; the limit is \(limit) bytes"
            }
        }

        /// Whether the file does not exist.
        public var isMissing: Bool {
            if case .systemCall(let code) = self { return code == ENOENT }
            return false
        }
    }

    /// Returns the content of the file at `path`, following symbolic links. Blocks on the file system only.
    ///
    /// - Parameter limit: The maximum size, in bytes.
    /// - Throws: ``Failure``; ``Failure/isMissing`` for a file that does not exist.
    public static func read(_ path: String, atMost limit: Int) throws(Failure) -> [UInt8] {
        guard !path.utf8.contains(0) else { throw .systemCall(EINVAL) }
        // O_NONBLOCK: opening a named pipe without a writer must not hang.
        let descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        guard descriptor >= 0 else { throw .systemCall(errno) }
        defer { close(descriptor) }
        return try read(FileDescriptor(rawValue: descriptor), atMost: limit)
    }

    /// Returns an open file's content from its current position to its end. Does not close it. Blocks on the file
    /// system only.
    ///
    /// - Parameter limit: The maximum size, in bytes.
    /// - Throws: ``Failure``, also for a file that grows beyond the limit while it is read.
    package static func read(_ file: FileDescriptor, atMost limit: Int) throws(Failure) -> [UInt8] {
        let status: Stat
        do throws(Errno) { status = try file.stat() } catch { throw .systemCall(error.rawValue) }
        guard status.type == .regular else { throw .notRegular(kind(of: status.type)) }
        guard status.size <= limit else { throw .tooLarge(status.size, limit: limit) }
        // One byte more than was promised shows the end, or that the file is growing. Read in place: a caller that
        // wipes what it gets has wiped all there was.
        var bytes = [UInt8](repeating: 0, count: Int(status.size) + 1)
        var used = 0
        while true {
            let count = bytes.withUnsafeMutableBytes { buffer in
                Glibc.read(file.rawValue, buffer.baseAddress.map { $0 + used }, buffer.count - used)
            }
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else { throw .systemCall(errno) }
            if count == 0 {
                bytes.removeLast(bytes.count - used)
                return bytes
            }
            used += count
            guard used <= limit else { throw .tooLarge(Int64(used), limit: limit) }
            if used == bytes.count { bytes += [UInt8](repeating: 0, count: 4096) }
        }
    }

    /// Returns an open file's content from its current position to its end, in memory that is wiped. Does not close it. Blocks on
    /// the file system only.
    ///
    /// - Parameter limit: The maximum size, in bytes.
    /// - Throws: ``Failure``, also for a file that grows while it is read.
    public static func readSecret(_ descriptor: Int32, atMost limit: Int) throws(Failure) -> SecretBytes {
        let status: Stat
        do throws(Errno) { status = try FileDescriptor(rawValue: descriptor).stat() } catch {
            throw .systemCall(error.rawValue)
        }
        guard status.type == .regular else { throw .notRegular(kind(of: status.type)) }
        let size = Int(status.size)
        guard size <= limit else { throw .tooLarge(status.size, limit: limit) }
        var used = 0
        // One byte more shows the end.
        let whole = try SecretBytes(count: size + 1) { buffer throws(Failure) in
            while used < buffer.count {
                let count = Glibc.read(
                    descriptor, UnsafeMutableRawBufferPointer(rebasing: buffer[used...]).baseAddress,
                    buffer.count - used)
                if count < 0 && errno == EINTR { continue }
                guard count >= 0 else { throw .systemCall(errno) }
                if count == 0 { return }
                used += count
            }
            throw .systemCall(EAGAIN)
        }
        return whole.withUnsafeBytes { SecretBytes(copying: $0[0..<used]) }
    }

    /// Makes a path absolute, so that a change of the working directory has no effect on it.
    public static func absolute(_ path: String) -> String {
        if path.hasPrefix("/") { return path }
        var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
        guard getcwd(&buffer, buffer.count) != nil else { return path }
        let directory = buffer.withUnsafeBytes { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        return (directory == "/" ? "" : directory) + "/" + (path.hasPrefix("./") ? String(path.dropFirst(2)) : path)
    }

    private static func kind(of type: FileType) -> String {
        switch type {
        case .directory: "a directory"
        case .fifo: "a named pipe"
        case .socket: "a socket"
        case .symbolicLink: "a symbolic link"
        default: "a device"
        }
    }
}

extension String {
    /// The next step for a file of this path that other users may read: a command, or where that is not possible, the mode to
    /// set for the volume. The command does not take the file from this user.
    package func stepToMode(_ mode: String, inVolume volumeMode: String) -> String {
        if access(self, W_OK) != 0, errno == EROFS {
            return
                "its file system is read-only; in Kubernetes, set defaultMode: \(volumeMode) for the volume, and fsGroup"
        }
        let user = geteuid()
        if user != 0, let owner = try? FilePath(self).stat().userID.rawValue, owner != user {
            let name = owner == 0 ? "root" : "its owner, uid \(owner),"
            let entries = "u:\(user):r,\(owner == 0 ? "" : "g::-,")m::r,o::-"
            return
                "it is not this user's: have \(name) run setfacl -m \(entries) \(shellQuoted), or give it a group of this process "
                + "and the mode 440"
        }
        return "run: chmod \(mode) \(shellQuoted)"
    }
}

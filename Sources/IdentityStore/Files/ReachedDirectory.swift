import CertificateProviding
import Glibc
import SystemPackage

/// A directory that was reached from the root down, without a link that another user may have put there. A name that is
/// opened, made or removed relative to ``descriptor`` is where the path says.
///
/// A link counts if it belongs to root or this user, and no other user may change the directories above it. Directories of other users are
/// passed, and in and below them no link is followed: they could lead this process to any file of root.
package final class ReachedDirectory: Sendable {
    /// For names in the directory only (`O_PATH`).
    package let descriptor: Int32
    /// The first directory on the way, this one included, that belongs to another user than root and this one.
    package let foreign: (path: String, owner: UInt32)?

    private init(_ descriptor: Int32, _ foreign: (path: String, owner: UInt32)?) {
        (self.descriptor, self.foreign) = (descriptor, foreign)
    }

    deinit { close(descriptor) }

    /// Opens the directory at `path`; `nil` if it does not exist. A relative path, which may be empty, begins at the current directory.
    package static func open(_ path: String) throws(SafeDirectory.Refusal) -> ReachedDirectory? {
        // The next one is the last.
        func names(_ text: String) -> [String] {
            let names = text.split(separator: "/").map(String.init).filter { $0 != "." }
            return Array(names.reversed())
        }
        var walk = try Walk(path.hasPrefix("/") ? "/" : ".")
        var rest = names(path)
        var links = 0
        while let name = rest.popLast() {
            switch try walk.enter(name) {
            case nil: return nil
            case .entered?: break
            case .link(let target)?:
                links += 1
                guard links <= 40 else { throw SafeDirectory.Refusal(reason: "\(path) leads through too many links") }
                if target.hasPrefix("/") { walk = try Walk("/") }
                rest += names(target)
            }
        }
        return ReachedDirectory(walk.descriptor.release(), walk.foreign)
    }

    private struct Walk {
        var descriptor: Owned
        private var path: String
        var foreign: (path: String, owner: UInt32)?
        /// Whether other users may have changed the way.
        private var isOpenToOthers = false

        enum Step { case entered, link(String) }

        /// `O_PATH`, which Swift does not import.
        private static let pathOnly: CInt = 0o10_000_000

        init(_ start: String) throws(SafeDirectory.Refusal) {
            let descriptor = Owned(Glibc.open(start, Self.pathOnly | O_DIRECTORY | O_CLOEXEC))
            guard descriptor.number >= 0 else {
                throw SafeDirectory.Refusal(reason: "\(start) cannot be opened: \(errorText(errno))")
            }
            path = start
            self.descriptor = descriptor
            note(try Self.status(descriptor.number, path))
        }

        /// Enters a directory, or returns where a link leads; `nil` if there is nothing of that name.
        mutating func enter(_ name: String) throws(SafeDirectory.Refusal) -> Step? {
            let next = path.hasSuffix("/") ? path + name : path + "/" + name
            // As a directory first, which has a file system mounted that is mounted on demand.
            var opened = Owned(openat(descriptor.number, name, Self.pathOnly | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC))
            if opened.number < 0, errno == ENOTDIR || errno == ELOOP {
                opened = Owned(openat(descriptor.number, name, Self.pathOnly | O_NOFOLLOW | O_CLOEXEC))
            }
            guard opened.number >= 0 else {
                if errno == ENOENT { return nil }
                throw SafeDirectory.Refusal(reason: "\(next) cannot be opened: \(errorText(errno))")
            }
            let status = try Self.status(opened.number, next)
            switch status.type {
            case .directory:
                (descriptor, path) = (opened, next)
                note(status)
                return .entered
            case .symbolicLink:
                guard !isOpenToOthers, Self.isTrusted(status) else { throw followed(next) }
                var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
                let count = readlinkat(opened.number, "", &buffer, buffer.count)
                guard count > 0 else {
                    throw SafeDirectory.Refusal(reason: "\(next) cannot be read: \(errorText(errno))")
                }
                return .link(String(decoding: buffer.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self))
            default: throw SafeDirectory.Refusal(reason: "\(next) is not a directory")
            }
        }

        private mutating func note(_ status: Stat) {
            // In a directory such as /tmp others change only their own names, and links of others do not count.
            let isShared = status.permissions.rawValue & 0o022 != 0 && status.permissions.rawValue & 0o1000 == 0
            if isShared || !Self.isTrusted(status) { isOpenToOthers = true }
            if !Self.isTrusted(status), foreign == nil { foreign = (path, status.userID.rawValue) }
        }

        private static func isTrusted(_ status: Stat) -> Bool { [0, geteuid()].contains(status.userID.rawValue) }

        private static func status(_ descriptor: Int32, _ path: String) throws(SafeDirectory.Refusal) -> Stat {
            do throws(Errno) { return try FileDescriptor(rawValue: descriptor).stat() } catch {
                throw SafeDirectory.Refusal(reason: "\(path) cannot be examined: \(error)")
            }
        }

        private func followed(_ path: String) -> SafeDirectory.Refusal {
            SafeDirectory.Refusal(
                reason:
                    "\(path) is a symbolic link that another user may have made, and certprov does not follow it; name the directory "
                    + "that it leads to")
        }
    }

    /// Closes a descriptor, unless it is released.
    private final class Owned {
        private(set) var number: Int32
        init(_ number: Int32) { self.number = number }
        deinit { if number >= 0 { close(number) } }

        func release() -> Int32 {
            defer { number = -1 }
            return number
        }
    }
}

import FoundationEssentials
import Glibc
import SystemPackage

/// Looks at every directory and link on the way to a file, from the root down: only root and this user may be able to change
/// it, or to put another file in its place.
package enum TrustedPath {
    /// Why a path is not used: a clause with the next step.
    package struct Refusal: Error { package var reason: String }

    package enum Kind { case directory, program, file }

    /// Checks an absolute path. Blocks on the file system.
    ///
    /// - Returns: Whether it exists.
    package static func check(_ path: String, _ kind: Kind, user: UInt32 = geteuid()) throws(Refusal) -> Bool {
        var rest = Array(path.split(separator: "/", omittingEmptySubsequences: true).map(String.init).reversed())
        var place = ""
        var links = 0
        try check(directory: "/", isLast: rest.isEmpty, user)
        while let name = rest.popLast() {
            if name == "." { continue }
            if name == ".." {
                place = place.lastIndex(of: "/").map { String(place[..<$0]) } ?? ""
                continue
            }
            let path = place + "/" + name
            guard let status = try status(of: path) else { return false }
            switch status.type {
            case .symbolicLink:
                // A link in a directory with the sticky bit belongs to its maker.
                try check(owner: status, path, user)
                links += 1
                guard links <= 40, let target = try? FileManager.default.destinationOfSymbolicLink(atPath: path)
                else {
                    throw Refusal(reason: "\(path) is a symbolic link that leads nowhere; remove it")
                }
                if target.hasPrefix("/") { place = "" }
                rest += target.split(separator: "/", omittingEmptySubsequences: true).map(String.init).reversed()
            case .directory:
                place = path
                try check(directory: path, isLast: rest.isEmpty, user)
                if rest.isEmpty && kind != .directory { throw Refusal(reason: "\(path) is a directory, not a \(kind)") }
            case .regular where rest.isEmpty && kind == .program:
                try check(program: status, path, user)
            case .regular where rest.isEmpty && kind == .file:
                try check(file: status, path, user)
            default:
                throw Refusal(
                    reason: "\(path) is not a \(rest.isEmpty && kind != .directory ? "regular file" : "directory")")
            }
        }
        return true
    }

    /// Checks a program alone, and not the way to it.
    package static func checkFile(_ path: String, user: UInt32 = geteuid()) throws(Refusal) {
        guard let status = try status(of: path) else { return }
        // For a link, each directory on its path counts.
        guard status.type == .regular else {
            _ = try check(path, .program, user: user)
            return
        }
        try check(program: status, path, user)
    }

    private static func status(of path: String) throws(Refusal) -> Stat? {
        do throws(Errno) { return try FilePath(path).stat(followTargetSymlink: false) } catch {
            if error == .noSuchFileOrDirectory || error == .notDirectory { return nil }
            throw Refusal(reason: "\(path) cannot be examined: \(error)")
        }
    }

    private static func check(owner status: Stat, _ path: String, _ user: uid_t) throws(Refusal) {
        guard [0, user].contains(status.userID.rawValue) else {
            throw Refusal(
                reason:
                    "\(path) belongs to another user (uid \(status.userID.rawValue)); install it so that the file and all "
                    + "directories above belong to root\(user == 0 ? "" : " or uid \(user)")")
        }
    }

    private static func check(directory path: String, isLast: Bool, _ user: uid_t) throws(Refusal) {
        guard let status = try status(of: path) else { return }
        try check(owner: status, path, user)
        // In a directory such as /tmp users can only change their own files, and all below is looked at.
        let isSticky = status.permissions.rawValue & 0o1000 != 0
        guard status.permissions.rawValue & 0o022 == 0 || isSticky && !isLast else {
            throw Refusal(
                reason:
                    "other users may write to \(path) (mode \(String(status.permissions.rawValue & 0o7777, radix: 8))); "
                    // A directory for all, such as /tmp.
                    + (isSticky
                        ? "use a subdirectory of it" : "use another directory, or run: chmod go-w \(path.shellQuoted)"))
        }
    }

    private static func check(file status: Stat, _ path: String, _ user: uid_t) throws(Refusal) {
        try check(owner: status, path, user)
        guard status.permissions.rawValue & 0o022 == 0 else {
            throw Refusal(
                reason:
                    "other users may write to \(path) (mode \(String(status.permissions.rawValue & 0o7777, radix: 8))); "
                    + "run: chmod go-w \(path.shellQuoted)")
        }
    }

    private static func check(program status: Stat, _ path: String, _ user: uid_t) throws(Refusal) {
        try check(file: status, path, user)
        guard status.permissions.rawValue & 0o6000 == 0 else {
            throw Refusal(reason: "\(path) runs as another user; run: chmod ug-s \(path.shellQuoted)")
        }
        guard access(path, X_OK) == 0 else {
            throw Refusal(reason: "\(path) is not executable; run: chmod +x \(path.shellQuoted)")
        }
    }
}

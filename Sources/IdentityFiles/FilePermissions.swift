import CertificateProviding
import Glibc
import IdentityStore

/// Owner, group and mode of the files for other programs.
package struct FilePermissions: Sendable, Equatable {
    /// The owner of all files; `nil` for that of the file before, or the process's user.
    package var owner: UInt32?
    /// The group of all files; `nil` for that of the file before, or that of a new file: the process's group, or the directory's if it
    /// hands it on (setgid).
    package var group: UInt32?
    /// The mode of files with the private key; `nil` for that of the file before, or 0600. Others never have access.
    package var keyMode: UInt32?

    package init(owner: UInt32? = nil, group: UInt32? = nil, keyMode: UInt32? = nil) {
        self.owner = owner
        self.group = group
        self.keyMode = keyMode
    }

    /// Reads a mode in octal digits, such as 0640: the owner reads, others have no access, and nothing is executed.
    package static func keyMode(_ text: String) -> UInt32? {
        guard (3...4).contains(text.utf8.count), let mode = UInt32(text, radix: 8), text.first != "+",
            mode & 0o400 != 0, mode & ~0o660 == 0
        else { return nil }
        return mode
    }

    package static let expectation =
        "must be 0600, 0640, 0400, 0440 or 0660: others never have access to a private key"

    /// Returns the number of a user, by its name or in digits; `nil` if there is none. Blocks on the user database.
    package static func user(_ name: String) -> UInt32? {
        if let number = number(name) { return number }
        var (entry, found) = (passwd(), UnsafeMutablePointer<passwd>?.none)
        var buffer = [CChar](repeating: 0, count: 16_384)
        return getpwnam_r(name, &entry, &buffer, buffer.count, &found) == 0 && found != nil ? entry.pw_uid : nil
    }

    /// Returns the number of a group, as ``user(_:)`` does.
    package static func group(_ name: String) -> UInt32? {
        if let number = number(name) { return number }
        var (entry, found) = (Glibc.group(), UnsafeMutablePointer<Glibc.group>?.none)
        var buffer = [CChar](repeating: 0, count: 65_536)
        return getgrnam_r(name, &entry, &buffer, buffer.count, &found) == 0 && found != nil ? entry.gr_gid : nil
    }
}

extension FilePermissions {
    /// The highest number stands for none in chown(2).
    private static func number(_ text: String) -> UInt32? {
        UInt32(text).flatMap { text.first != "+" && $0 != .max ? $0 : nil }
    }
}

/// A file as it is on disk.
struct FileState {
    let content: [UInt8]
    let mode: UInt32
    let (owner, group): (UInt32, UInt32)
    /// `nil` if the mode says it all.
    let accessList: AccessList?
}

extension FilePermissions {
    /// Refuses an owner and a group that this process cannot give, before it writes to `path`.
    func check(_ path: String) throws(SafeDirectory.Refusal) {
        guard !Capability.changeOwner.isEffective else { return }
        if let owner, owner != geteuid() {
            throw SafeDirectory.Refusal(
                reason: "files in \(path) cannot get the owner \(owner), which takes the capability CAP_CHOWN")
        }
        if let group, !SecretFileAccess.isOwn(group) {
            throw SafeDirectory.Refusal(
                reason: "files in \(path) cannot get the group \(group), which takes the capability CAP_CHOWN, or its "
                    + "membership"
            )
        }
    }

    private static let others: UInt32 = 0o007

    /// Whether a file is as demanded. The rest may be as an administrator has set it.
    func allow(_ file: FileState, hasKey: Bool) -> Bool {
        if hasKey, file.mode & Self.others != 0 || keyMode.map({ !Self.has(file, $0) }) ?? false { return false }
        return owner ?? file.owner == file.owner && group ?? file.group == file.group
    }

    private static func has(_ file: FileState, _ mode: UInt32) -> Bool {
        file.mode == mode && (file.accessList?.groupRights ?? mode >> 3) & 7 == mode >> 3 & 7
    }

    /// Returns mode, owner, group and access list of a new file; `nil` for those of the process. A mode that is demanded is the group's
    /// in the list, too.
    func new(
        replacing file: FileState?, hasKey: Bool
    ) -> (mode: mode_t, owner: UInt32?, group: UInt32?, list: AccessList?) {
        // A mode by which others read the key is a mistake.
        let before = file.flatMap { hasKey && $0.mode & Self.others != 0 ? nil : $0.mode }
        let mode = hasKey ? keyMode ?? before ?? 0o600 : before ?? 0o644
        var list = file?.accessList
        if hasKey, let keyMode { list?.groupRights = keyMode >> 3 & 7 }
        return (mode, owner ?? file?.owner, group ?? file?.group, list)
    }
}

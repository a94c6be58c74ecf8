import Glibc
import SystemPackage

/// The users that can read a file with a secret or a private key, besides root and the user of this process.
///
/// Root may let a group or an access control list (acl(5)) read its files. A file of another user may be read by groups that this
/// process is in. `Documentation/Decisions/003-secret-sources.md` has the reasons.
public struct SecretFileAccess: Sendable, Hashable {
    private let mode: UInt32
    private let (owner, group): (UInt32, UInt32)
    private let hasList: Bool
    /// Those that can read it, besides the owner, root and the user of this process.
    private let (users, groups): ([UInt32], [UInt32])
    /// Whether all users have access, or another one than the owner can change it.
    private let isPublic: Bool

    /// Looks at an open file; `nil` if that is not possible. Does not block.
    public init?(of descriptor: Int32) {
        guard let status = try? FileDescriptor(rawValue: descriptor).stat() else { return nil }
        self.init(
            mode: UInt32(status.permissions.rawValue), owner: status.userID.rawValue, group: status.groupID.rawValue,
            list: AccessList(of: descriptor))
    }

    package init(mode: UInt32, owner: UInt32, group: UInt32, list: AccessList?) {
        (self.mode, self.owner, self.group, hasList) = (mode & 0o777, owner, group, list != nil)
        let bound = mode >> 3 & 7
        func granted(_ entries: [(number: UInt32, rights: UInt32)]) -> [(number: UInt32, rights: UInt32)] {
            entries.map { ($0.number, $0.rights & bound) }.filter { $0.rights != 0 }
        }
        let users = granted(list?.users ?? []).filter { ![0, owner, geteuid()].contains($0.number) }
        let groups = granted([(number: group, rights: list?.groupRights ?? bound)] + (list?.groups ?? []))
        (self.users, self.groups) = (users.map(\.number), groups.map(\.number))
        isPublic = mode & 7 != 0 || (users + groups).contains { $0.rights != 4 }
    }

    /// Whether this process is in a group.
    package static func isOwn(_ group: UInt32) -> Bool {
        if getegid() == group { return true }
        let count = getgroups(0, nil)
        guard count > 0 else { return false }
        var groups = [gid_t](repeating: 0, count: Int(count))
        return getgroups(count, &groups) > 0 && groups.contains(group)
    }

    /// Whether the file is not to be used, since too many can read it.
    private var isRefused: Bool {
        isPublic || owner != 0 && !(users.isEmpty && groups.allSatisfy(Self.isOwn))
    }

    /// Whether the file belongs to neither root nor the user of this process.
    package var isOfAnotherUser: Bool { ![0, geteuid()].contains(owner) }

    /// Returns why the file is not to be used, and the next step, as a sentence without its full stop; `nil` if it may be used.
    ///
    /// - Parameters:
    ///   - subject: Begins the sentence, such as `key.pem has a private key and`.
    ///   - path: For a command in the next step.
    public func refusal(_ subject: String, path: String) -> String? {
        guard isRefused else { return nil }
        let list = hasList ? ", with an access control list" : ""
        let who = "mode \(String(mode, radix: 8)), group \(group)\(list)"
        return "\(subject) is open to other users (\(who)); \(step(path))"
    }

    /// No step takes the file from a reader that may have it.
    private func step(_ path: String) -> String {
        // Root decides who reads its files.
        if owner == 0, hasList || !Self.isOwn(group) { return path.stepToMode("g-wx,o=", inVolume: "0440") }
        let step = path.stepToMode("600", inVolume: "0400")
        let isForRoot = geteuid() == 0 && owner != 0
        return isForRoot ? step + ", or chown root \(path.shellQuoted), whose group and list may read it" : step
    }

    /// The warning about a file that others can read, or that another user owns; `nil` for a file of root or this user that is only its
    /// reader's, and for one that is refused.
    ///
    /// - Parameter name: The file, as the subject of the sentence.
    public func warning(about name: String) -> String? {
        guard !isRefused else { return nil }
        let readers =
            groups.map { "every member of the group \($0)" }
            + users.map { "the user \($0) of its access control list" }
        let sentences = [
            isOfAnotherUser ? "\(name) belongs to another user (uid \(owner)), who can read and replace it." : nil,
            readers.isEmpty ? nil : "\(name) can be read by \(readers.prefix(8).joined(separator: ", and by ")).",
        ].compactMap(\.self)
        return sentences.isEmpty ? nil : sentences.joined(separator: " ")
    }
}

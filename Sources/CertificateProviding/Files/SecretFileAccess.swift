import Glibc

/// The users that can read a file with a secret, besides its owner.
public enum SecretFileAccess: Sendable, Hashable {
    /// No other user.
    case owner
    /// The members of a group that this process is in, such as Kubernetes' `fsGroup` or Debian's `ssl-cert`; they can only read.
    case ownGroup(UInt32)
    /// Other users.
    case others

    /// Judges the mode and the group of a file.
    public init(mode: UInt32, group: UInt32) {
        switch mode & 0o077 {
        case 0: self = .owner
        case 0o040 where Self.isOwn(group): self = .ownGroup(group)
        default: self = .others
        }
    }

    /// Whether this process is in a group.
    package static func isOwn(_ group: UInt32) -> Bool {
        if getegid() == group { return true }
        let count = getgroups(0, nil)
        guard count > 0 else { return false }
        var groups = [gid_t](repeating: 0, count: Int(count))
        return getgroups(count, &groups) > 0 && groups.contains(group)
    }

    /// The warning about a file that a group can read; `nil` for another one.
    ///
    /// - Parameter name: The file, as the subject of the sentence.
    public func warning(about name: String) -> String? {
        guard case .ownGroup(let group) = self else { return nil }
        return "\(name) can be read by every member of the group \(group)."
    }
}

import CLinux
package import Glibc

/// The process at the other end of a Unix socket, as the kernel describes it: as it was when it connected or listened (unix(7)).
package final class SocketPeer: Sendable {
    package let process: pid_t
    /// The effective user and group.
    package let user: uid_t, group: gid_t
    /// The supplementary groups. None where the kernel does not say.
    package let groups: Set<gid_t>
    /// A descriptor of the process (pidfd_open(2)): unlike its number it is never another process. Closed with this object. `nil` where
    /// the kernel has none for a connection (before Linux 6.5), or the process is gone.
    package let descriptor: Int32?
    /// Whether the process is known to be gone.
    let hasEnded: Bool

    /// SO_PEERPIDFD and SO_PEERGROUPS, which the headers of older kernels lack.
    private static let processDescriptor: Int32 = 77, groupList: Int32 = 59

    /// - Parameters:
    ///   - connection: A connected socket. `nil` is returned for any other descriptor.
    ///   - bindsProcess: `false` to leave ``descriptor`` out, as an older kernel does. For tests.
    package init?(of connection: Int32, bindsProcess: Bool = true) {
        var (process, user, group): (Int32, UInt32, UInt32) = (0, 0, 0)
        guard certprov_peer(connection, &process, &user, &group) == 0 else { return nil }
        (self.process, self.user, self.group) = (process, user, group)
        groups = Self.groups(of: connection)
        descriptor = bindsProcess ? UnixSocket.option(Self.processDescriptor, of: connection) : nil
        hasEnded = bindsProcess && descriptor == nil && errno != ENOPROTOOPT
    }

    private static func groups(of connection: Int32) -> Set<gid_t> {
        // The kernel permits 65536.
        for capacity in [64, 65_536] {
            var groups = [gid_t](repeating: 0, count: capacity)
            var size = socklen_t(capacity * MemoryLayout<gid_t>.size)
            guard getsockopt(connection, SOL_SOCKET, groupList, &groups, &size) == 0 else { continue }
            return Set(groups.prefix(Int(size) / MemoryLayout<gid_t>.size))
        }
        return []
    }

    deinit { if let descriptor { close(descriptor) } }
}

import CLinux
package import Glibc

/// The process at the other end of a Unix socket, as the kernel describes it: as it was when it connected or listened (unix(7)).
package final class SocketPeer: Sendable {
    package let process: pid_t
    /// The effective user and group.
    package let user: uid_t, group: gid_t
    /// A descriptor of the process (pidfd_open(2)): unlike its number it is never another process. Closed with this object. `nil` where
    /// the kernel has none for a connection (before Linux 6.5), or the process is gone.
    package let descriptor: Int32?

    /// SO_PEERPIDFD, which the headers of older kernels lack.
    private static let processDescriptor: Int32 = 77

    /// - Parameter connection: A connected socket. `nil` is returned for any other descriptor.
    package init?(of connection: Int32) {
        var (process, user, group): (Int32, UInt32, UInt32) = (0, 0, 0)
        guard certprov_peer(connection, &process, &user, &group) == 0 else { return nil }
        (self.process, self.user, self.group) = (process, user, group)
        descriptor = UnixSocket.option(Self.processDescriptor, of: connection)
    }

    deinit { if let descriptor { close(descriptor) } }
}

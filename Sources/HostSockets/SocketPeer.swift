import CLinux
package import Glibc

/// The process at the other end of a Unix socket, as the kernel describes it: as it was when it connected or listened (unix(7)).
///
/// ``Caller`` looks at how it is now.
package final class SocketPeer: Sendable {
    package let process: pid_t
    let credentials: Credentials
    /// The effective user.
    package var user: uid_t { credentials.user }
    /// A descriptor of the process (pidfd_open(2)): unlike its number it is never another process. Closed with this object. `nil` if the
    /// process is gone.
    package let descriptor: Int32?
    /// Whether the descriptor is of the process that has connected, which takes Linux 6.5. Else that one may have ended before the connection
    /// was taken, and this is another one with its number.
    let isBound: Bool

    /// SO_PEERPIDFD and SO_PEERGROUPS, which the headers of older kernels lack.
    private static let processDescriptor: Int32 = 77, groupList: Int32 = 59

    /// - Parameters:
    ///   - connection: A connected socket. `nil` is returned for any other descriptor.
    ///   - bindsProcess: `false` to do as on an older kernel. For tests.
    package init?(of connection: Int32, bindsProcess: Bool = true) {
        var (process, user, group): (Int32, UInt32, UInt32) = (0, 0, 0)
        guard certprov_peer(connection, &process, &user, &group) == 0 else { return nil }
        self.process = process
        credentials = Credentials(user: user, groups: Self.groups(of: connection).union([group]))
        let bound = bindsProcess ? UnixSocket.option(Self.processDescriptor, of: connection) : nil
        isBound = bindsProcess && (bound != nil || errno != ENOPROTOOPT)
        let descriptor = isBound ? bound ?? -1 : certprov_process(process)
        self.descriptor = descriptor >= 0 ? descriptor : nil
    }

    /// The name that the other end has bound, as its bytes: that of an abstract socket begins with NUL. Empty for none.
    package static func name(of connection: Int32) -> [UInt8] {
        var address = sockaddr_un()
        var size = socklen_t(MemoryLayout<sockaddr_un>.size)
        let code = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getpeername(connection, $0, &size) }
        }
        let beginning = MemoryLayout<sockaddr_un>.size - MemoryLayout.size(ofValue: address.sun_path)
        guard code == 0, Int(size) > beginning, Int(size) <= MemoryLayout<sockaddr_un>.size else { return [] }
        return withUnsafeBytes(of: &address) { Array($0[beginning..<Int(size)]) }
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

    /// Whether the process still runs. Does not block.
    package var isRunning: Bool {
        guard let descriptor else { return false }
        var event = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&event, 1, 0) == 0
    }

    deinit { if let descriptor { close(descriptor) } }
}

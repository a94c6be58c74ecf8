import Glibc

/// A TCP port of this host that no other test has, for as long as this object lives: for a server that is given its port
/// before it starts.
///
/// The port is bound, but without a listener; a server that sets `SO_REUSEADDR`, as most do, can listen. Other tests and programs
/// choose theirs below 30000, and the kernel from 32768.
public final class ReservedPort: CustomStringConvertible, Sendable {
    public let number: Int
    private let descriptor: Int32

    public init() throws {
        var reason: Int32 = 0
        for _ in 0..<100 {
            let number = Int.random(in: 30000..<32768)
            let descriptor = socket(AF_INET6, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            // Both families: a server may take either.
            var address = sockaddr_in6()
            address.sin6_family = sa_family_t(AF_INET6)
            address.sin6_port = in_port_t(number).bigEndian
            let isBound = withUnsafePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in6>.size)) == 0
                }
            }
            // Only now, so that nothing else has it.
            var yes: Int32 = 1
            let size = socklen_t(MemoryLayout<Int32>.size)
            if isBound, setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, size) == 0 {
                self.number = number
                self.descriptor = descriptor
                return
            }
            reason = errno
            close(descriptor)
        }
        throw Subprocess.Failure(description: "no port can be reserved: \(String(cString: strerror(reason)))")
    }

    deinit { close(descriptor) }

    public var description: String { "\(number)" }
}

import CertificateProviding
import Glibc

/// Checks that the server's port is reachable, with a TCP connection that is closed at once.
struct PortCheck {
    private static let timeout: Int32 = 3000
    let host: String
    let port: UInt16

    /// - Parameter host: A name or an address, of IPv6 with or without brackets.
    init(host: String, port: UInt16) {
        self.host = host.filter { !"[]".contains($0) }
        self.port = port
    }

    func run() -> Finding {
        let what = "server \(hostAndPort(host, port))"
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host, String(port), &hints, &list)
        guard code == 0 else {
            return .error(
                what,
                ProviderError(
                    .unavailable,
                    "The name cannot be resolved: \(String(cString: gai_strerror(code))). Check it, and DNS."))
        }
        defer { freeaddrinfo(list) }
        var reason = "no address"
        var next = list
        while let address = next?.pointee {
            if let failure = Self.failure(of: address) { reason = failure } else { return .ok(what, "reachable") }
            next = address.ai_next
        }
        return .error(
            what,
            ProviderError(
                .unavailable, "The port cannot be reached: \(reason). Check it, and that the server is up."))
    }

    private static func failure(of address: addrinfo) -> String? {
        let kind = address.ai_socktype | Int32(SOCK_NONBLOCK.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(address.ai_family, kind, address.ai_protocol)
        guard descriptor >= 0 else { return errorText(errno) }
        defer { close(descriptor) }
        if connect(descriptor, address.ai_addr, address.ai_addrlen) == 0 { return nil }
        guard errno == EINPROGRESS else { return errorText(errno) }
        var waiting = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        guard poll(&waiting, 1, timeout) == 1 else { return "no answer within \(timeout / 1000) seconds" }
        var (result, size) = (Int32(0), socklen_t(MemoryLayout<Int32>.size))
        getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &result, &size)
        return result == 0 ? nil : errorText(result)
    }
}

import CertificateProviding
import NIOCore

/// An address that a tunnel listens at, or connects to: `HOST:PORT`, `[IPv6]:PORT`, or `unix:PATH`.
package enum TunnelAddress: Sendable, Equatable, CustomStringConvertible {
    case unix(String)
    case tcp(host: String, port: Int)

    static let expectation = "must be HOST:PORT, [IPv6]:PORT, or unix:PATH with an absolute path"

    init?(_ text: String) {
        if text.hasPrefix("unix:") || text.hasPrefix("/") {
            let path = text.hasPrefix("/") ? text : String(text.dropFirst(5))
            guard path.hasPrefix("/"), !path.hasSuffix("/") else { return nil }
            self = .unix(path)
            return
        }
        guard let colon = text.lastIndex(of: ":"), let port = UInt16(text[text.index(after: colon)...]),
            String(port) == text[text.index(after: colon)...]
        else { return nil }
        var host = text[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]"), host.contains(":") {
            host = host.dropFirst().dropLast()
        } else if host.contains(where: { ":[]".contains($0) }) {
            return nil
        }
        guard !host.isEmpty, !host.contains(where: \.isWhitespace) else { return nil }
        self = .tcp(host: String(host), port: Int(port))
    }

    package var description: String {
        switch self {
        case .unix(let path): "unix:" + path
        case .tcp(let host, let port): host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
        }
    }

    package var isUnix: Bool { if case .unix = self { true } else { false } }
    var port: Int? { if case .tcp(_, let port) = self { port } else { nil } }

    /// Whether only processes of this host reach it.
    var isLocal: Bool {
        switch self {
        case .unix: return true
        case .tcp(let name, _):
            guard let octets = Self.octets(of: name) else { return false }
            return octets.count == 4 ? octets[0] == 127 : octets == Array(repeating: 0, count: 15) + [1]
        }
    }

    /// The address to listen at or to connect to. A name of a host's own can be made to mean another host.
    static func address(of host: String) -> String { host.lowercased() == "localhost" ? "127.0.0.1" : host }

    private static func octets(of host: String) -> [UInt8]? {
        try? SocketAddress(ipAddress: address(of: host), port: 0).octets
    }

    /// Whether one that listens here would get the connections to the other, or take its address.
    func covers(_ other: Self) -> Bool {
        guard case .tcp(let name, let port) = self, case .tcp(let otherName, let otherPort) = other else {
            return self == other
        }
        let hosts = [name, otherName].map { Self.octets(of: $0) ?? Array($0.utf8) }
        // All zeros are all addresses of the host, and so is the name *.
        return port == otherPort
            && (hosts[0] == hosts[1] || hosts.contains { $0.allSatisfy { $0 == 0 } || $0 == Array("*".utf8) })
    }
}

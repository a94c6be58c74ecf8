import CertificateProviding
import ArgumentParser

/// A host and a port as command-line argument: `host:443`, `192.0.2.1:443`, `[2001:db8::1]:443`.
struct ServerAddress: ExpressibleByArgument, CustomStringConvertible {
    let host: String
    let port: UInt16

    init?(argument: String) {
        guard let colon = argument.lastIndex(of: ":"), let port = UInt16(argument[argument.index(after: colon)...]),
            port > 0
        else { return nil }
        var host = argument[..<colon]
        if host.hasPrefix("[") && host.hasSuffix("]") {
            host = host.dropFirst().dropLast()
        } else if host.contains(":") {
            return nil
        }
        guard !host.isEmpty else { return nil }
        self.host = String(host)
        self.port = port
    }

    var description: String { hostAndPort(host, port) }
}

import CertificateProviding
import FoundationEssentials

/// Where a server is, as the parameters say it.
package struct ServerURL: Sendable, Hashable {
    package let isSecure: Bool
    /// A DNS name or an IP address, without brackets.
    package let host: String
    package let port: Int
    /// Begins with a slash, unless it is empty; without a query. Percent-encoded.
    package let path: String
    package let query: String?

    /// - Returns: `nil` for anything but `http` and `https` with a host, and where there are user names or fragments:
    ///   these are not for a configuration.
    package init?(_ text: String) {
        guard let components = URLComponents(string: text), let scheme = components.scheme?.lowercased(),
            ["http", "https"].contains(scheme), let host = components.encodedHost, !host.isEmpty,
            components.user == nil, components.password == nil, components.fragment == nil,
            (1...65535).contains(components.port ?? 1)
        else { return nil }
        isSecure = scheme == "https"
        self.host = host.hasPrefix("[") ? String(host.dropFirst().dropLast()) : host
        port = components.port ?? (isSecure ? 443 : 80)
        path = components.percentEncodedPath
        query = components.percentEncodedQuery
    }

    package var origin: String { "\(isSecure ? "https" : "http")://\(authority)" }

    /// The `Host` of a request, and what people read.
    package var authority: String {
        guard port == (isSecure ? 443 : 80) else { return hostAndPort(host, port) }
        return host.contains(":") ? "[\(host)]" : host
    }

    /// The target of a redirection on the same server; `nil` where it leads elsewhere, or cannot be read.
    package func target(ofRedirection location: String) -> String? {
        guard !location.hasPrefix("//") else { return nil }
        if location.hasPrefix("/") { return ServerURL(origin + location)?.target }
        guard let other = ServerURL(location), other.origin == origin else { return nil }
        return other.target
    }

    /// What is asked of the server: path and query.
    package var target: String { (path.isEmpty ? "/" : path) + (query.map { "?" + $0 } ?? "") }
}

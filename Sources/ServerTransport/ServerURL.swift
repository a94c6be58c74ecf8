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

    /// What a reference means (RFC 3986, section 5) in the answer to a request for `target`, without its fragment.
    ///
    /// - Returns: `nil` for what is no URL of a server, or has a user in it.
    package func resolving(_ reference: String, against target: String) -> ServerURL? {
        let text = String(decoding: reference.utf8.prefix { $0 != UInt8(ascii: "#") }, as: UTF8.self)
        guard !text.isEmpty else { return ServerURL(origin + target) }
        return URL(string: text, relativeTo: URL(string: origin + target)).flatMap { ServerURL($0.absoluteString) }
    }

    /// Whether scheme, host and port are the same (RFC 6454, section 5).
    package func isOfSameOrigin(as other: ServerURL) -> Bool { origin.lowercased() == other.origin.lowercased() }

    /// What is asked of the server: path and query.
    package var target: String { (path.isEmpty ? "/" : path) + (query.map { "?" + $0 } ?? "") }
}

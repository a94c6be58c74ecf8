import CertificateProviding
import FoundationEssentials

/// The URL of a server, as a parameter gives it.
public struct ServerURL: Sendable, Hashable {
    /// Whether the scheme is `https`.
    public let isSecure: Bool
    /// A DNS name or an IP address, without brackets.
    public let host: String
    /// From 1 to 65535: the port of the URL, or the scheme's default, 443 or 80.
    public let port: Int
    /// Begins with a slash, unless it is empty; without a query. Percent-encoded.
    public let path: String
    /// The part between `?` and `#`, percent-encoded; `nil` if there is none.
    public let query: String?

    /// Reads a URL (RFC 3986).
    ///
    /// - Returns: `nil` for anything but `http` and `https` with a host, and for a URL with a user, a password or a
    ///   fragment.
    public init?(_ text: String) {
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

    /// The scheme and the ``authority``, such as `https://mdm.example.com:8443`. The port is left out if it is the
    /// default.
    public var origin: String { "\(isSecure ? "https" : "http")://\(authority)" }

    /// The `Host` of a request, also used in messages: the host, and the port unless it is the default.
    public var authority: String {
        guard port == (isSecure ? 443 : 80) else { return hostAndPort(host, port) }
        return host.contains(":") ? "[\(host)]" : host
    }

    /// Resolves a reference (RFC 3986, section 5) in the response to a request for `target`, without its fragment.
    ///
    /// - Returns: `nil` if the result is not a valid server URL, or has a user in it.
    func resolving(_ reference: String, against target: String) -> ServerURL? {
        let text = String(decoding: reference.utf8.prefix { $0 != UInt8(ascii: "#") }, as: UTF8.self)
        guard !text.isEmpty else { return ServerURL(origin + target) }
        return URL(string: text, relativeTo: URL(string: origin + target)).flatMap { ServerURL($0.absoluteString) }
    }

    /// Whether the host is this one: an address that leads nowhere else, or `localhost` (RFC 6761, section 6.3).
    public var isLoopback: Bool {
        let name = host.lowercased()
        let parts = name.split(separator: ".", omittingEmptySubsequences: false)
        return name == "localhost" || name == "::1"
            || parts.count == 4 && parts[0] == "127" && parts.allSatisfy { UInt8($0) != nil }
    }

    /// Whether scheme, host and port are the same (RFC 6454, section 5).
    public func isOfSameOrigin(as other: ServerURL) -> Bool { origin.lowercased() == other.origin.lowercased() }

    /// The request target: path and query.
    public var target: String { (path.isEmpty ? "/" : path) + (query.map { "?" + $0 } ?? "") }
}

public import CertificateProviding
public import CertificateTLSCore
public import FoundationEssentials
package import ServerTransport

/// Where an authorisation server issues tokens (RFC 6749, section 3.2), and how it is known.
public struct TokenEndpoint: Sendable {
    package let server: ServerURL
    let trust: ServerTrust
    let timeout: Duration
    let date: @Sendable () -> Date
    /// What the requests go through.
    package var proxy: HTTPProxy?

    /// - Parameters:
    ///   - url: `https://…`, with a path and perhaps a query. Never plain HTTP, since secrets go there.
    ///   - trust: Whom to take for this server. A public identity provider has a certificate that
    ///     ``TrustAnchors/system`` knows; one of your own is better known by its own anchor or a pin.
    ///   - timeout: How long one token may take, connecting and a refused refresh token included.
    ///   - date: The wall clock, by which the server's certificate is judged.
    /// - Throws: `configurationInvalid` for a URL that is none, or not `https`.
    public init(
        _ url: String, trust: ServerTrust, timeout: Duration = .seconds(60),
        date: @escaping @Sendable () -> Date = { Date() }
    ) throws(CertificateProviderError) {
        // The URL is not shown: somebody may have put a password into it.
        guard let server = ServerURL(url) else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The token endpoint is no URL; it is https://HOST[:PORT]/PATH, without a user or a fragment.")
        }
        guard server.isSecure else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The token endpoint at \(server.authority) is not https:, and credentials go over nothing else (RFC 6749, "
                    + "section 3.2).")
        }
        self.server = server
        self.trust = trust
        self.timeout = timeout
        self.date = date
    }

    /// The same endpoint, reached through an HTTP proxy: a tunnel (RFC 9110, section 9.3.6) in which TLS ends at the
    /// server as without it. Environment variables that name proxies are not looked at.
    ///
    /// - Parameters:
    ///   - proxy: `http://HOST:PORT`. Plain HTTP is spoken with it.
    ///   - user: For the proxy, with `password` by HTTP Basic (RFC 7617): whoever listens on the way there reads both.
    ///     No colon and no control character may be in it.
    /// - Throws: `configurationInvalid` for a proxy or a user that is none.
    public func through(
        proxy: String, user: String? = nil, password: SecretBytes? = nil
    ) throws(CertificateProviderError) -> TokenEndpoint {
        guard var next = HTTPProxy(proxy) else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The proxy for the token endpoint at \(server.authority) is not http://HOST:PORT, where a user is not part of it."
            )
        }
        if let user {
            guard user.isUserName else {
                throw CertificateProviderError(
                    .configurationInvalid,
                    "The user for the proxy \(next.server.authority) has a colon or a control character in it, which none has (RFC 7617)."
                )
            }
            next = next.with(user: user, password: password ?? SecretBytes(utf8: ""))
        }
        var endpoint = self
        endpoint.proxy = next
        return endpoint
    }
}

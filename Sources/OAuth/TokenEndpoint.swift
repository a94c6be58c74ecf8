public import CertificateProviding
public import CertificateTLS
public import FoundationEssentials
public import ProviderTransport

/// The token endpoint of an authorisation server (RFC 6749, section 3.2), and how to authenticate it.
public struct TokenEndpoint: Sendable {
    /// The server, with the path of the endpoint.
    public let server: ServerURL
    let trust: ServerTrust
    let timeout: Duration
    let date: @Sendable () -> Date
    let executor: BlockingExecutor
    /// The proxy for the requests; `nil` for a direct connection.
    public var proxy: HTTPProxy?
    /// The settings that messages name, so that the user finds what to change.
    public var settingNames = ServerSettingNames()
    /// The network that the connections are made in.
    package var network: any Network

    /// Creates an endpoint. Nothing is sent yet.
    ///
    /// - Parameters:
    ///   - url: `https://…`, with a path and optionally a query. Plain HTTP is refused, since secrets are sent there.
    ///   - trust: How to authenticate the server. Use ``/CertificateTLS/TrustAnchors/system`` for a public identity provider, and a
    ///     trust anchor or a pin for a server of your own.
    ///   - timeout: How long one token may take, including the connection and a refused refresh token.
    ///   - date: The wall clock for the validity of the server's certificate.
    ///   - network: The network that the connections are made in.
    ///   - executor: Runs the reading of the trust anchors' files; by default a thread of its own, while there is work.
    /// - Throws: `configurationInvalid` for an invalid URL, or one that is not `https:`.
    public init(
        _ url: String, trust: ServerTrust, timeout: Duration = .seconds(60),
        date: @escaping @Sendable () -> Date = { Date() }, network: any Network = TCPNetwork(),
        executor: BlockingExecutor = .threads(maximum: 1)
    ) throws(ProviderError) {
        // The URL is not shown, since it may contain a password.
        guard let server = ServerURL(url) else {
            throw ProviderError(
                .configurationInvalid,
                "The URL of the token endpoint is not valid: expected https://HOST[:PORT]/PATH, without a user or a "
                    + "fragment.")
        }
        guard server.isSecure else {
            throw ProviderError(
                .configurationInvalid,
                "The token endpoint at \(server.authority) is not https:, and credentials are sent only over TLS (RFC "
                    + "6749, section 3.2).")
        }
        self.server = server
        self.trust = trust
        self.timeout = timeout
        self.date = date
        self.network = network
        self.executor = executor
    }

    /// Returns the same endpoint, reached through an HTTP proxy. The proxy opens a tunnel (RFC 9110, section 9.3.6), in
    /// which TLS is end to end. Environment variables that name proxies are ignored.
    ///
    /// - Parameters:
    ///   - proxy: `http://HOST:PORT`. The connection to the proxy itself is plain HTTP.
    ///   - user: The user name for the proxy, sent with `password` by HTTP Basic (RFC 7617), readable on the way to
    ///     the proxy. It must not contain a colon or a control character.
    /// - Throws: `configurationInvalid` for an invalid proxy or user name.
    public func through(
        proxy: String, user: String? = nil, password: SecretBytes? = nil
    ) throws(ProviderError) -> TokenEndpoint {
        guard var next = HTTPProxy(proxy) else {
            throw ProviderError(
                .configurationInvalid,
                "The proxy for the token endpoint at \(server.authority) is not valid: expected http://HOST:PORT, "
                    + "without a user.")
        }
        if let user {
            guard user.isUserName else {
                throw ProviderError(
                    .configurationInvalid,
                    "The user name for the proxy \(next.server.authority) must not contain a colon or a control "
                        + "character (RFC 7617).")
            }
            next = next.with(user: user, password: password ?? SecretBytes(utf8: ""))
        }
        var endpoint = self
        endpoint.proxy = next
        return endpoint
    }
}

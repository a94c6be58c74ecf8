public import CertificateProviding

/// The rule that chooses the proxy for a server.
public struct ProxyChoice: Sendable {
    enum Kind: Sendable {
        case direct
        case always(HTTPProxy)
        case environment(ProxyEnvironment)
    }
    let kind: Kind

    /// Every server is reached directly.
    public static let direct = ProxyChoice(kind: .direct)

    /// Every server is reached through this proxy.
    public static func always(_ proxy: HTTPProxy) -> ProxyChoice { ProxyChoice(kind: .always(proxy)) }

    /// The environment variables decide, as curl and Go's `net/http` read them.
    ///
    /// `https_proxy` or `HTTPS_PROXY` is for https: servers, `http_proxy` for http: servers; `no_proxy` or `NO_PROXY`
    /// lists the exceptions. An empty variable means no proxy. This host itself is never reached through a proxy.
    ///
    /// - Parameter secrets: Reads the variables, when a proxy is asked for. There may be a password in them.
    public static func environment(_ secrets: SecretReader) -> ProxyChoice {
        ProxyChoice(kind: .environment(ProxyEnvironment { try? secrets.read(.environment($0)) }))
    }

    /// Returns the proxy for a server; `nil` for a direct connection.
    ///
    /// - Throws: `configurationInvalid` if an environment variable is not `[http://][USER[:PASSWORD]@]HOST:PORT`. The
    ///   server is not reached directly instead, since the proxy may be there to prevent that.
    public func proxy(for server: ServerURL) throws(ProviderError) -> HTTPProxy? {
        switch kind {
        case .direct: nil
        case .always(let proxy): proxy
        case .environment(let environment): try environment.proxy(for: server)
        }
    }
}

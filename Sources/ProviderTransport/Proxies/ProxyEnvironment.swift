import CertificateProviding
import FoundationEssentials

/// The proxies that environment variables name, read as curl and Go's `net/http` do.
///
/// `https_proxy` or `HTTPS_PROXY` is for https: servers, `http_proxy` for http: servers; `no_proxy` or `NO_PROXY` lists
/// the exceptions. `HTTP_PROXY` is ignored: in a program that a web server starts, a request's `Proxy:` field would set
/// it. An empty variable means no proxy. This host itself is never reached through a proxy.
struct ProxyEnvironment: Sendable {
    private let variable: @Sendable (String) -> SecretBytes?

    /// Creates the proxies of an environment. Reads the variables when a proxy is asked for.
    ///
    /// - Parameter variable: Looks up an environment variable. There may be a password in it.
    init(_ variable: @escaping @Sendable (String) -> SecretBytes?) { self.variable = variable }

    /// Returns the proxy that the variables name for a server; `nil` for a direct connection.
    ///
    /// - Throws: `configurationInvalid` for a value that is not `[http://][USER[:PASSWORD]@]HOST:PORT`. The server is
    ///   not reached directly instead, since the proxy may be there to prevent that.
    func proxy(for server: ServerURL) throws(ProviderError) -> HTTPProxy? {
        let names = server.isSecure ? ["https_proxy", "HTTPS_PROXY"] : ["http_proxy"]
        guard let (name, value) = first(of: names), !NoProxyList.isThisHost(server.host) else { return nil }
        if let (_, exceptions) = first(of: ["no_proxy", "NO_PROXY"]),
            NoProxyList(exceptions).contains(server.host, port: server.port)
        {
            return nil
        }
        // The value is not shown, since a password may be in it.
        guard var proxy = Self.proxy(value) else {
            throw ProviderError(
                .configurationInvalid,
                "The environment variable \(name) is not a usable proxy URL: expected "
                    + "http://[USER:PASSWORD@]HOST:PORT. Correct it, or unset it.")
        }
        proxy.variable = name
        return proxy
    }

    /// Returns the first variable that is set; `nil` if none is set, or if that one is empty, which hides the others.
    private func first(of names: [String]) -> (name: String, value: String)? {
        for name in names {
            guard let value = variable(name) else { continue }
            let text = value.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }.trimmed
            return text.isEmpty ? nil : (name, text)
        }
        return nil
    }

    private static func proxy(_ text: String) -> HTTPProxy? {
        let scheme = "http://"
        var rest = Substring(text)
        if rest.lowercased().hasPrefix(scheme) { rest = rest.dropFirst(scheme.count) }
        guard !rest.contains("://"), var components = URLComponents(string: scheme + rest) else { return nil }
        let (user, password) = (components.user, components.password)
        (components.user, components.password) = (nil, nil)
        return components.string.flatMap {
            HTTPProxy($0, user: user, password: password.map { SecretBytes(utf8: $0) })
        }
    }
}

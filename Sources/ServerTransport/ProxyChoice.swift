package import CertificateProviding
import FoundationEssentials

/// Which proxy is on the way to a server.
package enum ProxyChoice: Sendable {
    /// To whichever server, directly.
    case none
    /// To whichever server, through this one.
    case always(HTTPProxy)
    /// As the environment says.
    case environment(ProxyEnvironment)

    /// - Throws: `configurationInvalid` where the environment says what cannot be followed.
    package func proxy(for server: ServerURL) throws(CertificateProviderError) -> HTTPProxy? {
        switch self {
        case .none: nil
        case .always(let proxy): proxy
        case .environment(let environment): try environment.proxy(for: server)
        }
    }
}

/// What environment variables say of proxies, read as curl and Go's `net/http` do.
///
/// `https_proxy` or `HTTPS_PROXY` is for https: servers, `http_proxy` for http: ones, `no_proxy` or `NO_PROXY` lists
/// the exceptions. There is no `HTTP_PROXY`: in a program that a web server starts, a request's `Proxy:` field would
/// set it. An empty variable is none. This host itself is never reached through a proxy.
package struct ProxyEnvironment: Sendable {
    private let variable: @Sendable (String) -> SecretBytes?

    /// - Parameter variable: Looks up an environment variable. There may be a password in it.
    package init(_ variable: @escaping @Sendable (String) -> SecretBytes?) { self.variable = variable }

    /// - Throws: `configurationInvalid` for a proxy that is not `[http://][USER[:PASSWORD]@]HOST:PORT`: to go without
    ///   it might be what it is there to prevent.
    package func proxy(for server: ServerURL) throws(CertificateProviderError) -> HTTPProxy? {
        let names = server.isSecure ? ["https_proxy", "HTTPS_PROXY"] : ["http_proxy"]
        guard let (name, value) = first(of: names), !NoProxyList.isThisHost(server.host) else { return nil }
        if let (_, exceptions) = first(of: ["no_proxy", "NO_PROXY"]),
            NoProxyList(exceptions).contains(server.host, port: server.port)
        {
            return nil
        }
        // The value is not shown, since a password may be in it.
        guard let proxy = Self.proxy(value) else {
            throw CertificateProviderError(
                .configurationInvalid,
                "The environment variable \(name) is no proxy that can be used, http://[USER:PASSWORD@]HOST:PORT; correct it, "
                    + "or set 'proxy'.")
        }
        return proxy
    }

    /// The first that is set, which may be empty to hide the others.
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

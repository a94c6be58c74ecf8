public import CertificateProviding

/// The parameters by which a provider reaches a server: each provider that has them declares them with these names, so
/// that they mean the same everywhere.
public enum ServerParameter {
    /// The URL of the server, http: or https:.
    ///
    /// - Parameter isSecure: Whether only https: is accepted, for servers that get a secret with each request.
    public static func url(_ name: String = "url", isSecure: Bool = false, summary: String) -> Parameter<ServerURL> {
        Parameter(name, .serverURL, absent: nil, summary: summary) { text, _ throws(ParameterProblem) in
            guard let server = ServerURL(text) else {
                throw .expected("must be an http: or https: URL with a host, and without a user or a fragment")
            }
            guard server.isSecure || !isSecure else {
                throw .expected("must begin with https:, since secrets are sent")
            }
            return server
        }
    }

    /// A PEM file with the CA of the server's certificate. A blank is an error: without the file, other servers may be trusted.
    ///
    /// - Parameter kind: `trustAnchors` where the value may be `system`, which the provider reads itself.
    public static func trustAnchors(
        _ name: String = "trust-anchors", _ kind: ParameterDescriptor.Kind = .certificateFile,
        defaultValue: String? = nil, needs: [ParameterCondition] = [],
        summary: String = "PEM file with the CA of the server's certificate."
    ) -> Parameter<String?> {
        .string(
            name, kind, defaultValue: defaultValue, needs: needs, summary: summary)
    }

    /// Pins as `CertificatePin` reads them, separated by commas.
    public static func pins(
        _ name: String = "pin", needs: [ParameterCondition] = [],
        summary: String = "Pins, separated by commas; the server's chain must contain one of them: sha256/BASE64 of a "
            + "public key, or a certificate file."
    ) -> Parameter<[String]> { .pins(name, needs: needs, summary: summary) }

    /// A user name for HTTP Basic or Digest.
    public static func userName(
        _ name: String = "username", needs: [ParameterCondition] = [], summary: String
    ) -> Parameter<String?> {
        Parameter(name, .string, needs: needs, summary: summary) {
            text, _ throws(ParameterProblem) in
            guard text.isUserName else { throw .expected("must not have a colon or a control character (RFC 7617)") }
            return text
        }
    }

    /// The proxy for all requests; `nil` if the environment variables decide. ``ProxySettings`` reads it.
    public static let proxy = Parameter<ProxyChoice?>(
        "proxy", .proxyURL,
        defaultValue: "https_proxy or http_proxy, and no_proxy, of the environment",
        summary: "http://HOST:PORT of the proxy for all requests, or none."
    ) { text, _ throws(ParameterProblem) in
        if text == "none" { return .direct }
        guard let proxy = HTTPProxy(text) else {
            throw .expected("must be http://HOST:PORT or none; set the user with 'proxy-username'")
        }
        return .always(proxy)
    }
    /// The user name for ``proxy``.
    public static let proxyUsername = userName(
        "proxy-username", needs: [.given("proxy")], summary: "User name for the proxy (HTTP Basic).")
    /// The source of the password for ``proxy``.
    public static let proxyPasswordSource = Parameter.secretSource(
        "proxy-password-source", defaultValue: "prompt, if there is a proxy-username",
        needs: [.given("proxy-username")],
        summary: "Secret source of the proxy's password.")

    /// How long the server may take for all requests of a run: 1 second to a day, by default 60 seconds.
    public static func timeout(
        summary: String = "Seconds that the server may take for all requests of a run."
    ) -> Parameter<Duration> {
        .seconds("timeout", default: 60, in: 1...86_400, summary: summary)
    }
}

public import CertificateProviding

/// The proxy that a provider's parameters name: ``ServerParameter/proxy``, ``ServerParameter/proxyUsername`` and
/// ``ServerParameter/proxyPasswordSource``.
public struct ProxySettings: Sendable {
    /// `nil` if the environment variables decide.
    private let proxy: ProxyChoice?
    private let user: String?
    private let passwordSource: SecretSource?

    /// Reads the proxy and its user name from parameters. Reads no password yet.
    ///
    /// - Throws: `configurationInvalid` for a user without a proxy.
    public init(_ parameters: Parameters) throws(ProviderError) {
        proxy = parameters[ServerParameter.proxy]
        user = parameters[ServerParameter.proxyUsername]
        passwordSource = parameters[ServerParameter.proxyPasswordSource]
        if case .direct = proxy?.kind, user != nil {
            throw parameters.invalid(
                ServerParameter.proxyUsername, "cannot be used with proxy=none; remove one of the two")
        }
    }

    /// Whether ``choice(_:_:)`` asks the user for the proxy's password.
    public var asksForPassword: Bool {
        guard case .always = proxy?.kind else { return false }
        return user != nil && passwordSource ?? .prompt == .prompt
    }

    /// Returns the rule that chooses the proxy. Reads the proxy's password, if there is a user name for it, or asks the
    /// user.
    ///
    /// - Throws: `rejected` for a password from a source that the proxy has rejected before; the errors of
    ///   ``/CertificateProviding/ProviderEnvironment/secret(from:prompt:interaction:)`` and
    ///   ``/CertificateProviding/ProviderEnvironment/isRejected(_:for:)``.
    public func choice(
        _ environment: ProviderEnvironment, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> ProxyChoice {
        guard let proxy else { return .environment(environment.secrets) }
        guard case .always(let server) = proxy.kind, let user else { return proxy }
        let password = try await environment.secret(
            from: passwordSource ?? .prompt, prompt: "Password of \(user) at the proxy \(server.server.authority)",
            interaction: interaction)
        let complete = server.with(user: user, password: password)
        if let credentials = complete.credentials, let source = passwordSource, source != .prompt,
            try await environment.isRejected(credentials.password, for: credentials.account)
        {
            throw ProviderError(
                .rejected,
                "The proxy \(server.server.authority) has rejected this password of '\(user.withVisibleControls)' before, so it is "
                    + "not sent again; correct 'proxy-password-source', or set it to prompt and enter the password once."
            )
        }
        return .always(complete)
    }

    /// Notes whether the proxy has rejected or accepted the password, so that a rejected one is not sent again by itself. Call it
    /// at the end of a run.
    ///
    /// - Parameters:
    ///   - error: The error of the run; `nil` if it has succeeded.
    ///   - proxies: The result of ``choice(_:_:)`` for the run.
    public func noteOutcome(
        _ error: ProviderError?, through proxies: ProxyChoice, _ environment: ProviderEnvironment
    ) async {
        guard case .always(let proxy) = proxies.kind, let credentials = proxy.credentials else { return }
        let isRejected = error?.reason == .rejectedProxyPassword
        guard isRejected || error == nil else { return }
        await environment.noteOutcome(of: credentials.password, for: credentials.account, isRejected: isRejected)
    }
}

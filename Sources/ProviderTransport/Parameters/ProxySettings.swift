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
    public init(_ parameters: Parameters) throws(CertificateProviderError) {
        proxy = parameters[ServerParameter.proxy]
        user = parameters[ServerParameter.proxyUsername]
        passwordSource = parameters[ServerParameter.proxyPasswordSource]
        if case .direct = proxy?.kind, user != nil {
            throw parameters.invalid(ServerParameter.proxyUsername, "needs a 'proxy'")
        }
    }

    /// Returns the rule that chooses the proxy. Reads the proxy's password, if there is a user name for it, or asks the
    /// user.
    ///
    /// - Throws: The errors of ``ProviderEnvironment/secret(from:prompt:interaction:)``.
    public func choice(
        _ environment: ProviderEnvironment, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> ProxyChoice {
        guard let proxy else { return .environment(environment.secrets) }
        guard case .always(let server) = proxy.kind, let user else { return proxy }
        let password = try await environment.secret(
            from: passwordSource ?? .prompt, prompt: "Password of \(user) at the proxy \(server.server.authority)",
            interaction: interaction)
        return .always(server.with(user: user, password: password))
    }
}

import CertificateProviding
import ServerTransport

/// The validated parameters for a proxy.
enum ProxySettings: Sendable {
    /// The environment variables decide.
    case environment
    case none
    case configured(HTTPProxy, user: String?, passwordSource: SecretSource?)

    /// The parameter `proxy`.
    enum Place: Sendable {
        case environment, none
        case configured(HTTPProxy)
    }

    /// - Throws: `configurationInvalid`.
    init(_ parameters: Parameters) throws(CertificateProviderError) {
        switch parameters[EnrolmentParameter.proxy] {
        case .environment: self = .environment
        case .none:
            guard !parameters.isGiven(EnrolmentParameter.proxyUsername) else {
                throw parameters.invalid(EnrolmentParameter.proxyUsername, "needs a 'proxy'")
            }
            self = .none
        case .configured(let proxy):
            self = .configured(
                proxy, user: parameters[EnrolmentParameter.proxyUsername],
                passwordSource: parameters[EnrolmentParameter.proxyPasswordSource])
        }
    }

    /// Returns the rule that chooses the proxy. Reads the proxy's password, if there is a user name for it, or asks the
    /// user.
    func choice(
        _ environment: ProviderEnvironment, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> ProxyChoice {
        switch self {
        case .none: return .none
        case .environment:
            // There may be a password in them.
            return .environment(
                ProxyEnvironment { [secrets = environment.secrets] in try? secrets.read(.environment($0)) })
        case .configured(let proxy, let user, let source):
            guard let user else { return .always(proxy) }
            let password = try await environment.secret(
                from: source ?? .prompt, prompt: "Password of \(user) at the proxy \(proxy.server.authority)",
                interaction: interaction)
            return .always(proxy.with(user: user, password: password))
        }
    }
}

import CertificateProviding
import RemoteMDMParameters
import ServerTransport

/// The parameters for a proxy, checked.
enum ProxySettings: Sendable {
    /// As the environment says.
    case environment
    case none
    case configured(HTTPProxy, user: String?, passwordSource: SecretSource?)

    /// - Throws: `configurationInvalid`.
    init(_ parameters: ProviderParameters, provider: ProviderID) throws(CertificateProviderError) {
        let user = parameters.string(Parameter.proxyUsername)
        let source = try parameters.secretSource(Parameter.proxyPasswordSource, provider: provider)
        guard let text = parameters.string(Parameter.proxy), text != "none" else {
            for name in [Parameter.proxyUsername, Parameter.proxyPasswordSource] where parameters.string(name) != nil {
                throw parameters.invalid(name, "needs a 'proxy'", provider: provider)
            }
            self = parameters.string(Parameter.proxy) == nil ? .environment : .none
            return
        }
        guard let proxy = HTTPProxy(text) else {
            throw parameters.invalid(
                Parameter.proxy, "must be http://HOST:PORT or none; a user is for 'proxy-username'", provider: provider)
        }
        guard source == nil || user != nil else {
            throw parameters.invalid(Parameter.proxyPasswordSource, "needs a 'proxy-username'", provider: provider)
        }
        guard user?.isUserName != false else {
            throw parameters.invalid(
                Parameter.proxyUsername, "must not have a colon or a control character (RFC 7617)", provider: provider)
        }
        self = .configured(proxy, user: user, passwordSource: source)
    }

    /// Reads the password for the proxy, where it has one, or asks the person.
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

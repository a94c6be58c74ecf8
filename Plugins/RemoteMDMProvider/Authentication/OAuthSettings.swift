import CertificateProviding
import CertificateTLSCore
import FoundationEssentials
import OAuth
import RemoteMDMParameters
import ServerTransport

/// The parameters for tokens of OAuth 2, checked.
struct OAuthSettings: Sendable {
    enum Grant: String { case clientCredentials = "client-credentials", password }
    private enum Authentication: String { case basic, body }

    let grant: Grant
    let clientID: String
    /// `nil` for a client that only names itself.
    let secretSource: SecretSource?
    let authentication: OAuthClient.Authentication
    let scopes: [String]
    let authority: String
    private let url: String
    private let trust: ConfiguredTrust
    private let isOnSameServer: Bool

    /// - Parameter server: Where the tokens are used.
    /// - Returns: `nil` where none of the parameters is there.
    /// - Throws: `configurationInvalid`.
    init?(_ parameters: ProviderParameters, for server: ServerURL, provider: ProviderID)
        throws(CertificateProviderError)
    {
        guard let url = parameters.string(Parameter.tokenURL) else {
            if let name = Parameter.ofTokens.first(where: { parameters.string($0) != nil }) {
                throw parameters.invalid(name, "needs a '\(Parameter.tokenURL)'", provider: provider)
            }
            return nil
        }
        guard let endpoint = ServerURL(url), endpoint.isSecure else {
            throw parameters.invalid(
                Parameter.tokenURL, "must be https://HOST[:PORT]/PATH (RFC 6749, section 3.2)", provider: provider)
        }
        guard server.isSecure else {
            throw parameters.invalid(
                Parameter.tokenURL, "is of no use with an http: server, which no token is sent to (RFC 6750)",
                provider: provider)
        }
        guard let grant = Grant(rawValue: parameters.string(Parameter.grant) ?? Grant.clientCredentials.rawValue)
        else {
            throw parameters.invalid(
                Parameter.grant, "must be client-credentials or password", provider: provider)
        }
        guard
            let authentication = Authentication(
                rawValue: parameters.string(Parameter.clientAuthentication) ?? Authentication.basic.rawValue)
        else {
            throw parameters.invalid(Parameter.clientAuthentication, "must be basic or body", provider: provider)
        }
        guard (parameters.string(Parameter.username) != nil) == (grant == .password) else {
            throw parameters.invalid(
                Parameter.username,
                "and grant=password need each other where there is a '\(Parameter.tokenURL)'",
                provider: provider)
        }
        scopes = (parameters.string(Parameter.scope) ?? "").split(separator: " ").map(String.init)
        guard scopes.allSatisfy(AccessTokenSource.isScope) else {
            throw parameters.invalid(
                Parameter.scope, "must be words of ASCII without quotation marks and backslashes",
                provider: provider)
        }
        clientID = try parameters.requiredString(Parameter.clientID, provider: provider)
        secretSource =
            try parameters.secretSource(Parameter.clientSecretSource, provider: provider)
            ?? (grant == .clientCredentials ? .prompt : nil)
        trust = try ConfiguredTrust(
            anchors: Parameter.tokenTrustAnchors, pins: Parameter.tokenPin, in: parameters, provider: provider)
        isOnSameServer = endpoint.isOfSameOrigin(as: server)
        self.grant = grant
        self.authentication = authentication == .basic ? .basic : .body
        self.authority = endpoint.authority
        self.url = url
    }

    /// The token endpoint. A public identity provider has a certificate that the host's list knows, and the server's
    /// own authority does not. Blocks on the files of trust anchors and pins.
    ///
    /// - Parameter server: Whom to take for the server that the tokens are for.
    func endpoint(
        trustLike server: ServerTrust, through proxies: ProxyChoice, timeout: Duration,
        date: @escaping @Sendable () -> Date
    ) throws(CertificateProviderError) -> TokenEndpoint {
        var known = isOnSameServer ? server : ServerTrust(trustAnchors: .system)
        if trust.hasAnchors { known = try trust.serverTrust() }
        // Besides whatever authorities it is known by.
        if trust.hasPins { known.pins = try trust.pins() }
        var endpoint = try TokenEndpoint(url, trust: known, timeout: timeout, date: date)
        endpoint.proxy = try proxies.proxy(for: endpoint.server)
        return endpoint
    }
}

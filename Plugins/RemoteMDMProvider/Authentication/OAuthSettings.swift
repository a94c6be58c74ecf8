import CertificateProviding
import CertificateTLS
import FoundationEssentials
import OAuth
import ProviderTransport

/// The validated parameters for OAuth 2.
struct OAuthSettings: Sendable {
    enum Grant: String, CaseIterable { case clientCredentials = "client-credentials", password }
    enum Authentication: String, CaseIterable { case basic, body }

    let grant: Grant
    let clientID: String
    /// `nil` for a public client.
    let secretSource: SecretSource?
    let authentication: OAuthClient.Authentication
    let scopes: [String]
    let authority: String
    private let url: String
    private let trust: ConfiguredTrust
    let isOnSameServer: Bool

    /// - Parameter server: The server that the tokens are for.
    /// - Returns: `nil` if none of the parameters is set.
    /// - Throws: `configurationInvalid`.
    init?(_ parameters: Parameters, for server: ServerURL) throws(ProviderError) {
        // They need each other.
        guard let endpoint = parameters[EnrolmentParameter.tokenURL],
            let clientID = parameters[EnrolmentParameter.clientID]
        else { return nil }
        guard server.isSecure else {
            throw parameters.invalid(
                EnrolmentParameter.tokenURL,
                "cannot be used with an http: server: tokens are sent only over TLS (RFC 6750)")
        }
        grant = parameters[EnrolmentParameter.grant]
        guard parameters.isGiven(EnrolmentParameter.username) == (grant == .password) else {
            throw parameters.invalid(
                EnrolmentParameter.username,
                "and grant=password need each other if '\(EnrolmentParameter.tokenURL.name)' is set")
        }
        scopes = (parameters[EnrolmentParameter.scope] ?? "").split(separator: " ").map(String.init)
        guard scopes.allSatisfy(AccessTokenSource.isScope) else {
            throw parameters.invalid(
                EnrolmentParameter.scope,
                "must be words of printable ASCII without quotation marks and backslashes, separated by spaces")
        }
        self.clientID = clientID
        secretSource =
            parameters[EnrolmentParameter.clientSecretSource] ?? (grant == .clientCredentials ? .prompt : nil)
        trust = ConfiguredTrust(
            anchors: EnrolmentParameter.tokenTrustAnchors, pins: EnrolmentParameter.tokenPin, in: parameters)
        isOnSameServer = endpoint.isOfSameOrigin(as: server)
        authentication = parameters[EnrolmentParameter.clientAuthentication] == .basic ? .basic : .body
        authority = endpoint.authority
        url = parameters.text(EnrolmentParameter.tokenURL) ?? ""
    }

    /// Returns the token endpoint. Without parameters for its trust, the system trust store authenticates it, as for a
    /// public identity provider; an endpoint on the enrolment server is trusted like that server. Blocks while the
    /// files of trust anchors and pins are read.
    ///
    /// - Parameter server: The trust in the enrolment server.
    func endpoint(
        trustLike server: ServerTrust, through proxies: ProxyChoice, over network: any Network, timeout: Duration,
        _ environment: ProviderEnvironment
    ) throws(ProviderError) -> TokenEndpoint {
        var known = isOnSameServer ? server : ServerTrust(trustAnchors: .system)
        if trust.hasAnchors { known = try trust.serverTrust() }
        // In addition to the trust anchors.
        if trust.hasPins { known.pins = try trust.pins() }
        var endpoint = try TokenEndpoint(
            url, trust: known, timeout: timeout, date: environment.now, network: network, executor: environment.executor
        )
        endpoint.proxy = try proxies.proxy(for: endpoint.server)
        let url = "'\(EnrolmentParameter.tokenURL.name)'"
        let anchors =
            isOnSameServer && !trust.hasAnchors ? EnrolmentParameter.trustAnchors : EnrolmentParameter.tokenTrustAnchors
        endpoint.settingNames = ServerSettingNames(address: url, path: url, trustAnchors: "'\(anchors.name)'")
        return endpoint
    }
}

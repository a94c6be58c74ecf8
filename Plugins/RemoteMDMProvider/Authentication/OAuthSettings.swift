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
    private let username: String?
    private let passwordSource: SecretSource?
    private let trust: ConfiguredTrust
    private let isPinOnly: Bool
    let isOnSameServer: Bool

    /// The parameters of an access token without an enrolment.
    static let parameters: [ParameterDescriptor] = [
        EnrolmentParameter.username.descriptor, EnrolmentParameter.passwordSource.descriptor,
        EnrolmentParameter.tokenURL.descriptor, EnrolmentParameter.clientID.descriptor,
        EnrolmentParameter.clientSecretSource.descriptor, EnrolmentParameter.clientAuthentication.descriptor,
        EnrolmentParameter.scope.descriptor, EnrolmentParameter.grant.descriptor,
        EnrolmentParameter.tokenTrustAnchors.descriptor, EnrolmentParameter.tokenPin.descriptor,
        EnrolmentParameter.tokenPinMode.descriptor, ServerParameter.proxy.descriptor,
        ServerParameter.proxyUsername.descriptor, ServerParameter.proxyPasswordSource.descriptor,
        EnrolmentParameter.timeout.descriptor,
    ]

    /// - Parameter server: The enrolment server that the tokens are for; `nil` for ``parameters``.
    /// - Returns: `nil` if none of the parameters is set.
    /// - Throws: `configurationInvalid`.
    init?(_ parameters: Parameters, for server: ServerURL?) throws(ProviderError) {
        // They need each other.
        guard let endpoint = parameters[EnrolmentParameter.tokenURL],
            let clientID = parameters[EnrolmentParameter.clientID]
        else { return nil }
        guard server?.isSecure != false else {
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
        isPinOnly = parameters[EnrolmentParameter.tokenPinMode]
        isOnSameServer = server.map(endpoint.isOfSameOrigin) ?? false
        username = parameters[EnrolmentParameter.username]
        passwordSource = parameters[EnrolmentParameter.passwordSource]
        authentication = parameters[EnrolmentParameter.clientAuthentication] == .basic ? .basic : .body
        authority = endpoint.authority
        url = parameters.text(EnrolmentParameter.tokenURL) ?? ""
    }

    /// The name of a record for these settings: another one for another account or scope.
    var storageName: String {
        StoredIdentity.name(distinguishedBy: [url, clientID, username ?? "", scopes.joined(separator: " ")])
    }

    /// Returns the source of access tokens; `nil` for a renewal whose secret is missing, or was rejected before.
    ///
    /// - Parameters:
    ///   - server: The trust in the enrolment server.
    ///   - refreshToken: The refresh token that takes the place of the user's password; `nil` if there is none.
    func tokens(
        trustLike server: ServerTrust, through proxies: ProxyChoice, within timeout: Duration, _ secrets: SecretsInHand,
        _ environment: ProviderEnvironment, isRenewal: Bool = false, refreshing refreshToken: SecretBytes? = nil
    ) async throws(ProviderError) -> AccessTokenSource? {
        let endpoint = try await environment.executor.run { () throws(ProviderError) -> TokenEndpoint in
            try self.endpoint(trustLike: server, through: proxies, timeout: timeout, environment)
        }
        var clientSecret: SecretBytes?
        if let source = secretSource {
            clientSecret = try await secrets.secret(
                from: source, "Secret of the OAuth client \(clientID) at \(authority)", isRenewal: isRenewal,
                .init(kind: .clientSecret, user: clientID, authority: authority))
            if clientSecret == nil { return nil }
        }
        let client = try OAuthClient(clientID, secret: clientSecret, authentication: authentication)
        var grant = OAuthGrant.clientCredentials
        if let refreshToken {
            grant = .refreshToken(refreshToken)
        } else if self.grant == .password, let username {
            let password = try await secrets.password(
                of: username, at: authority, from: passwordSource, isRenewal: isRenewal)
            guard let password else { return nil }
            grant = .legacyPassword(user: username, password: password)
        }
        return try AccessTokenSource(endpoint, client: client, grant: grant, scopes: scopes)
    }

    /// Returns the token endpoint. Without parameters for its trust, the system trust store authenticates it, as for a
    /// public identity provider; an endpoint on the enrolment server is trusted like that server. Blocks while the
    /// files of trust anchors and pins are read.
    ///
    /// - Parameter server: The trust in the enrolment server.
    private func endpoint(
        trustLike server: ServerTrust, through proxies: ProxyChoice, timeout: Duration,
        _ environment: ProviderEnvironment
    ) throws(ProviderError) -> TokenEndpoint {
        var known = isOnSameServer ? server : ServerTrust(trustAnchors: .system)
        if trust.hasAnchors { known = try trust.serverTrust() }
        // In addition to the trust anchors.
        if trust.hasPins { known.pins = try trust.pins() }
        if isPinOnly { known = ServerTrust(trustAnchors: known.trustAnchors, pins: known.pins, isPinOnly: true) }
        var endpoint = try TokenEndpoint(
            url, trust: known, timeout: timeout, date: environment.now, network: environment.transport.network,
            executor: environment.executor)
        endpoint.proxy = try proxies.proxy(for: endpoint.server)
        let url = "'\(EnrolmentParameter.tokenURL.name)'"
        let anchors =
            isOnSameServer && !trust.hasAnchors ? EnrolmentParameter.trustAnchors : EnrolmentParameter.tokenTrustAnchors
        endpoint.settingNames = ServerSettingNames(address: url, path: url, trustAnchors: "'\(anchors.name)'")
        return endpoint
    }
}

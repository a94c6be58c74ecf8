package import CertificateProviding
package import OAuth
import CertificateTLS
import Logging
import ProviderTransport

extension RemoteMDMProvider {
    /// Requests an access token by the OAuth settings of a provider. Enrols nothing: the parameters of the enrolment are not needed.
    ///
    /// A secret that the token endpoint has rejected, for the provider or here, is not sent again from its source. With grant=password,
    /// the refresh token of the server is stored, and used instead of the password until the server refuses it.
    ///
    /// - Parameters:
    ///   - environment: That of the provider.
    ///   - parameters: Those of the provider, with `token-url` and `client-id`.
    ///   - interaction: Asks for a secret whose source is `prompt`.
    /// - Throws: `unsupportedParameter` and `configurationInvalid`, which name the parameter; `operationNotAllowed` while another
    ///   process requests a token with the refresh token; as ``/OAuth/AccessTokenSource/token()``.
    package static func accessToken(
        environment: ProviderEnvironment, parameters: ProviderParameters, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> AccessToken {
        do throws(ProviderError) {
            let access = try await TokenAccess(environment, parameters, interaction)
            do throws(ProviderError) {
                let token = try await access.token()
                await access.noteOutcome(nil)
                return token
            } catch {
                await access.noteOutcome(error)
                throw error
            }
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Deletes the refresh token that is stored for the OAuth settings of a provider, if there is one.
    ///
    /// - Throws: As ``accessToken(environment:parameters:_:)``, and `storeWriteFailed`.
    package static func forgetRefreshToken(
        environment: ProviderEnvironment, parameters: ProviderParameters
    ) async throws(ProviderError) {
        do throws(ProviderError) {
            let oauth = try oauth(environment, parameters).oauth
            try await environment.executor.run { () throws(ProviderError) in
                try environment.storage.removeRecord(named: StoredRefreshToken.recordName(oauth))
            }
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Whether parameters are for more than access tokens.
    package static func configuresEnrolment(_ texts: ProviderParameters) -> Bool {
        EnrolmentParameter.all.contains { parameter in
            texts[parameter.name] != nil && !OAuthSettings.parameters.contains { $0.name == parameter.name }
        }
    }

    /// Returns the OAuth settings, and those of the enrolment if there are any.
    fileprivate static func oauth(
        _ environment: ProviderEnvironment, _ texts: ProviderParameters
    ) throws(ProviderError) -> (oauth: OAuthSettings, parameters: Parameters, server: (any MDMProtocol)?) {
        let isEnrolment = configuresEnrolment(texts)
        let tokenAlone = ProviderDescriptor(
            id: id, displayName: descriptor.displayName, summary: descriptor.summary,
            parameters: OAuthSettings.parameters
        ) { environment, parameters throws(ProviderError) in try make(environment, parameters) }
        let parameters = try (isEnrolment ? descriptor : tokenAlone).check(texts, environment)
        let server = isEnrolment ? try server(environment, parameters) : nil
        guard let oauth = try OAuthSettings(parameters, for: server?.settings.server) else {
            throw ProviderError(
                .configurationInvalid,
                "No OAuth settings are configured; set '\(EnrolmentParameter.tokenURL.name)' and "
                    + "'\(EnrolmentParameter.clientID.name)'.")
        }
        return (oauth, parameters, server)
    }
}

/// One request for an access token.
private struct TokenAccess {
    private let environment: ProviderEnvironment
    private let oauth: OAuthSettings
    /// The trust in the enrolment server, for a token endpoint on it.
    private let trust: ServerTrust
    private let proxy: ProxySettings
    private let proxies: ProxyChoice
    private let timeout: Duration
    private let secrets: SecretsInHand

    init(
        _ environment: ProviderEnvironment, _ texts: ProviderParameters, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        let (oauth, parameters, server) = try RemoteMDMProvider.oauth(environment, texts)
        (self.environment, self.oauth, proxy) = (environment, oauth, try ProxySettings(parameters))
        timeout = parameters[EnrolmentParameter.timeout]
        if let run = try await server?.run(interaction) {
            (proxies, secrets) = (run.access.proxies, run.secrets)
            trust =
                oauth.isOnSameServer && server is ESTProtocol
                ? try await ESTTrust(run).serverTrust(presenting: nil) : try await run.connectionTrust()
        } else {
            proxies = try await proxy.choice(environment, interaction)
            (secrets, trust) = (SecretsInHand(environment, interaction), ServerTrust(trustAnchors: .system))
        }
    }

    func token() async throws(ProviderError) -> AccessToken {
        guard oauth.grant == .password else { return try await request() }
        let record = StoredRefreshToken.recordName(oauth)
        // A server may withdraw a refresh token that comes twice.
        let token = try await environment.withLease(of: record) { () async throws(ProviderError) in
            if let stored = try await StoredRefreshToken.read(record, environment) {
                do throws(ProviderError) { return try await request(refreshing: stored) } catch {
                    guard error.reason == .rejectedGrant else { throw error }
                    try await StoredRefreshToken.remove(record, environment)
                }
            }
            return try await request()
        }
        guard let token else {
            throw ProviderError(
                .operationNotAllowed,
                "Another process requests a token for these settings with the refresh token that both have; try again when it has ended.",
                reason: .busy)
        }
        return token
    }

    /// Requests a token, and stores the refresh token that comes with it.
    private func request(refreshing stored: SecretBytes? = nil) async throws(ProviderError) -> AccessToken {
        let source = try await oauth.tokens(
            trustLike: trust, through: proxies, within: timeout, secrets, environment, refreshing: stored)
        guard let source else { throw ProviderError(.internal, "No secret was read for the token endpoint.") }
        let token = try await source.token()
        if oauth.grant == .password, let new = token.refreshToken, new != stored {
            await StoredRefreshToken.write(new, StoredRefreshToken.recordName(oauth), environment)
        }
        return token
    }

    /// Notes the secrets that the token endpoint has rejected or accepted, so that a rejected one is not sent again by itself.
    func noteOutcome(_ error: ProviderError?) async {
        for (account, secret) in error.map(secrets.accounts(rejectedBy:)) ?? secrets.accounts {
            await environment.noteOutcome(of: secret, for: account.name, isRejected: error != nil)
        }
        await proxy.noteOutcome(error, through: proxies, environment)
    }
}

/// A refresh token in the storage of the provider, so that the user need not log in for each access token.
private struct StoredRefreshToken: Codable {
    let token: String

    static func recordName(_ oauth: OAuthSettings) -> String { "refresh-token-\(oauth.storageName)" }

    private static let format = VersionedRecord<Self>(
        of: "a refresh token", ifDamaged: "delete it with 'certprov access-token --forget'")

    static func read(
        _ name: String, _ environment: ProviderEnvironment
    ) async throws(ProviderError) -> SecretBytes? {
        try await environment.executor.run { () throws(ProviderError) in
            guard let record = try environment.storage.record(named: name) else { return nil }
            return try format.undamagedContent(of: record).map { SecretBytes(utf8: $0.token) }
        }
    }

    static func remove(_ name: String, _ environment: ProviderEnvironment) async throws(ProviderError) {
        try await environment.executor.run { () throws(ProviderError) in
            try environment.storage.removeRecord(named: name)
        }
    }

    /// A failure is logged: the access token is there, and the user logs in once more.
    static func write(_ token: SecretBytes, _ name: String, _ environment: ProviderEnvironment) async {
        do throws(ProviderError) {
            let text = token.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
            let record = try format.record(of: Self(token: text))
            try await environment.executor.run { () throws(ProviderError) in
                try environment.storage.updateRecord(named: name) { _ in record }
            }
        } catch {
            environment.logger.warning(
                "the refresh token cannot be stored, so that the user must log in for the next access token",
                metadata: ["reason": "\(error)"])
        }
    }
}

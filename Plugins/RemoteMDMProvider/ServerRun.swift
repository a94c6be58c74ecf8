import CertificateProviding
import CertificateTLS
import Glibc
import Logging
import OAuth
import ProviderTransport
import Synchronization

/// The secrets, the identity to present and the connections of one run.
final class ServerRun: Sendable {
    let settings: EnrolmentSettings
    let environment: ProviderEnvironment
    let interaction: any UserInteraction
    let access: ServerAccess
    let trust: AuthorityTrust
    private let secretsInHand = SecretsInHand()

    private struct State {
        var presented: (leaf: X509Certificate?, isOwn: Bool) = (nil, false)
        /// The refusal of the current certificate, after which the run enrols without it.
        var refusal: ProviderError?
        /// The identity of `client-certificate` for that; `nil` inside if there is none.
        var device: Identity??
    }
    private let state = Mutex(State())

    init(
        _ settings: EnrolmentSettings, _ environment: ProviderEnvironment, _ interaction: any UserInteraction,
        _ access: ServerAccess, _ trust: AuthorityTrust
    ) {
        (self.settings, self.environment, self.interaction) = (settings, environment, interaction)
        (self.access, self.trust) = (access, trust)
    }

    /// The certificate that is presented to the server, and whether it is the one to be renewed.
    var presented: (leaf: X509Certificate?, isOwn: Bool) {
        get { state.withLock(\.presented) }
        set { state.withLock { $0.presented = newValue } }
    }

    /// Whether a password, a token or a challenge is configured.
    private var hasSecret: Bool {
        settings.username != nil || settings.bearerSource != nil || settings.oauth != nil
            || settings.challengeSource != nil
    }

    /// Whether an enrolment without the current certificate is possible after the server has refused it: the credentials are there.
    ///
    /// - Throws: `refusal` if the credentials for that are missing.
    func canEnrolAnew(after refusal: ProviderError) async throws(ProviderError) -> Bool {
        guard hasSecret || settings.clientCertificate != nil, refusal.reason == .rejectedCertificate else {
            return false
        }
        state.withLock { $0.refusal = refusal }
        do throws(ProviderError) {
            let device = try await clientIdentity(isOptional: hasSecret)
            state.withLock { $0.device = .some(device) }
        } catch {
            throw error.code == .userCancelled ? error : impossible(error, after: refusal)
        }
        // It is otherwise read only when the request is made.
        do throws(ProviderError) { _ = try await challenge(isRenewal: false) } catch {
            throw explained(error)
        }
        return true
    }

    private func impossible(
        _ reason: ProviderError, after refusal: ProviderError
    ) -> ProviderError {
        var refusal = refusal
        refusal.message += " An enrolment without it is not possible either: \(reason.message)"
        return refusal
    }

    /// Adds to an error what the run knows: which certificate was refused, why a password was withheld, and that the error ends
    /// an enrolment without the current certificate.
    func explained(_ error: ProviderError) -> ProviderError {
        let (presented, refusal) = state.withLock { ($0.presented, $0.refusal) }
        if let refusal, error.isMissingSecret { return impossible(error, after: refusal) }
        var error = presented.leaf.map { error.naming($0, isOwn: presented.isOwn) } ?? error
        if error.code == .rejected, refusal == nil, let withheld = secretsInHand.withheld {
            error.message += " \(withheld.message)"
        }
        return error
    }

    /// Returns the identity of `client-certificate`, which authenticates an enrolment; `nil` if none is configured.
    func device() async throws(ProviderError) -> Identity? {
        if let known = state.withLock(\.device) { return known }
        return try await clientIdentity()
    }

    /// - Parameter isOptional: Whether a failure is only logged, and the result is then `nil`: the certificate may be gone
    ///   by now, and another credential is enough.
    private func clientIdentity(isOptional: Bool = false) async throws(ProviderError) -> Identity? {
        guard let certificate = settings.clientCertificate else { return nil }
        do throws(ProviderError) {
            return try await certificate.identity(environment, interaction)
        } catch {
            guard isOptional, error.code != .userCancelled else { throw error }
            environment.logger.warning(
                "enrolling without 'client-certificate'", metadata: ["reason": "\(error.message)"])
            return nil
        }
    }

    /// Returns a session with the server. Opens no connection yet.
    func session(
        presenting known: Identity?, _ trust: ServerTrust, _ credentials: ServerCredentials
    ) throws(ProviderError) -> ServerSession {
        let security = ServerSecurity(
            trust: trust,
            credentials: try (settings.server.isSecure ? known : nil).map {
                identity throws(ProviderError) in
                try TLSCredentials(identity)
            }, now: environment.now, executor: environment.executor)
        let session = access.session(security, credentials)
        secretsInHand.session = session
        return session
    }

    func challenge(isRenewal: Bool) async throws(ProviderError) -> SecretBytes? {
        guard let source = settings.challengeSource else { return nil }
        return try await secret(from: source, "Challenge for \(settings.server.authority)", isRenewal: isRenewal)
    }

    func credentials(
        _ trust: ServerTrust, isRenewal: Bool
    ) async throws(ProviderError) -> ServerCredentials {
        let authority = settings.server.authority
        if let oauth = settings.oauth {
            return try await tokens(oauth, trust, isRenewal: isRenewal).map { .tokens($0) } ?? .none
        }
        if let source = settings.bearerSource {
            guard let token = try await secret(from: source, "Token for \(authority)", isRenewal: isRenewal) else {
                return .none
            }
            return try .bearer(token, from: EnrolmentParameter.bearerSource.name)
        }
        guard let user = settings.username,
            let password = try await password(of: user, at: authority, isRenewal: isRenewal)
        else { return .none }
        return .password(user: user, password)
    }

    private func password(
        of user: String, at authority: String, isRenewal: Bool
    ) async throws(ProviderError) -> SecretBytes? {
        try await secret(
            from: settings.passwordSource ?? .prompt, "Password of \(user) at \(authority)", isRenewal: isRenewal,
            .init(kind: .password, user: user, authority: authority))
    }

    /// Returns a secret for the server: password, token or challenge.
    ///
    /// - Parameter account: What a server locks after a few wrong secrets; `nil` for a token or a challenge.
    /// - Returns: `nil` for a renewal whose secret is missing, or was rejected before: the current certificate authenticates
    ///   it, and the secret for the first enrolment may be gone. Another one is sent, since some servers want both.
    private func secret(
        from source: SecretSource, _ prompt: String, isRenewal: Bool, _ account: SecretsInHand.Account? = nil
    ) async throws(ProviderError) -> SecretBytes? {
        do throws(ProviderError) {
            return try await secretsInHand.secret(prompt, account) { () async throws(ProviderError) in
                let secret = try await environment.secret(from: source, prompt: prompt, interaction: interaction)
                if let account, source != .prompt, try await environment.isRejected(secret, for: account.name) {
                    throw account.rejectedBefore
                }
                return secret
            }
        } catch {
            guard isRenewal, error.isMissingSecret else { throw error }
            if error.reason == .rejectedBefore { secretsInHand.withheld = error }
            // A prompt has no answer in a renewal without a person, which is usual.
            environment.logger.log(
                level: source == .prompt ? .debug : .warning, "renewing with the current certificate only",
                metadata: ["reason": "\(error.message)"])
            return nil
        }
    }

    /// Notes the passwords that the server has rejected or accepted in this run, so that a rejected one is not sent again by itself.
    func noteOutcome(_ error: ProviderError?) async {
        // A request that is pending was accepted from this client.
        let rejection = error?.code == .pending ? nil : error
        var accounts = rejection.map(secretsInHand.accounts(rejectedBy:)) ?? secretsInHand.accounts
        // The current certificate may have authenticated a renewal, without the password.
        if rejection == nil, settings.oauth == nil, await secretsInHand.session?.hasSentPassword != true {
            accounts = []
        }
        for (account, secret) in accounts {
            await environment.noteOutcome(of: secret, for: account.name, isRejected: rejection != nil)
        }
        await settings.proxy.noteOutcome(rejection, through: access.proxies, environment)
    }

    func tokens(
        _ oauth: OAuthSettings, _ trust: ServerTrust, isRenewal: Bool
    ) async throws(ProviderError) -> AccessTokenSource? {
        let endpoint = try await environment.executor.run { [self] () throws(ProviderError) in
            try oauth.endpoint(
                trustLike: trust, through: access.proxies, over: access.transport.network, timeout: settings.timeout,
                environment)
        }
        var clientSecret: SecretBytes?
        if let source = oauth.secretSource {
            let prompt = "Secret of the OAuth client \(oauth.clientID) at \(oauth.authority)"
            clientSecret = try await secret(
                from: source, prompt, isRenewal: isRenewal,
                .init(kind: .clientSecret, user: oauth.clientID, authority: oauth.authority))
            if clientSecret == nil { return nil }
        }
        let client = try OAuthClient(oauth.clientID, secret: clientSecret, authentication: oauth.authentication)
        var grant = OAuthGrant.clientCredentials
        if oauth.grant == .password, let user = settings.username {
            guard let password = try await password(of: user, at: oauth.authority, isRenewal: isRenewal) else {
                return nil
            }
            grant = .legacyPassword(user: user, password: password)
        }
        return try AccessTokenSource(endpoint, client: client, grant: grant, scopes: oauth.scopes)
    }
}

extension ProviderError {
    /// Whether a secret does not exist, needs a user to enter it, or was rejected before. An unsafe secret is not missing.
    var isMissingSecret: Bool {
        [.fileNotFound, .interactionRequired].contains(code)
            // Other codes have other numbers: a failInfo of SCEP may be 2 as well.
            || code == .configurationInvalid && nativeCode == Int(ENOENT) || reason == .rejectedBefore
    }

    /// Adds to a refusal in the TLS handshake which certificate the server has refused.
    ///
    /// - Parameter isOwn: Whether the server itself has issued the certificate.
    fileprivate func naming(_ shown: X509Certificate, isOwn: Bool) -> Self {
        guard code == .rejected, let number = nativeCode.flatMap(UInt8.init(exactly:)),
            TLSAlert(rawValue: number).refusesCertificate
        else { return self }
        var copy = self
        copy.message +=
            isOwn
            ? " The refused certificate is the one to be renewed, '\(shown.subject)'. If the server has changed its "
                + "CA, delete the identity and enrol again."
            : " The refused certificate is that of 'client-certificate', '\(shown.subject)'. Check that the server "
                + "trusts its CA, and that the file contains the intermediate certificates."
        return copy
    }
}

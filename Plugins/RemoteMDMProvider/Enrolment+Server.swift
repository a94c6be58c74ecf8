import CertificateProviding
import CertificateTLS
import Glibc
import Logging
import OAuth
import ProviderTransport

/// Connecting to the server, and authenticating to it.
extension Enrolment {
    /// Returns how the server is reached and authenticated.
    func trust() async throws(CertificateProviderError) -> AuthorityTrust {
        let proxies = try await settings.proxy.choice(environment, interaction)
        secretsInHand.proxies = proxies
        let access = try ServerAccess(settings, environment, transport, through: proxies)
        return try await blocking { () throws(CertificateProviderError) in
            try AuthorityTrust(settings, environment, interaction, access)
        }
    }

    /// Whether a password, a token or a challenge is configured.
    var hasSecret: Bool {
        settings.username != nil || settings.bearerSource != nil || settings.oauth != nil
            || settings.challengeSource != nil
    }

    /// Whether anything but the current certificate can authenticate an enrolment.
    var hasCredential: Bool { hasSecret || settings.clientCertificate != nil }

    /// Connects to the server, and asks for its authorities.
    ///
    /// - Parameters:
    ///   - known: The identity to present to the server.
    ///   - isRenewal: Whether `known` is the identity to be renewed.
    func connect(
        presenting known: Identity?, isRenewal: Bool, _ trust: AuthorityTrust
    ) async throws(CertificateProviderError) -> (client: any EnrolmentProtocol, authorities: [X509Certificate]) {
        let access = trust.access
        interaction.report("Asking \(settings.server.authority) for its authorities")
        let first = try await trust.serverTrust(presenting: known)
        let credentials = try await credentials(first, access, isRenewal: isRenewal)
        var client = try makeClient(presenting: known, first, credentials, trust)
        do { try await client.connect() } catch {
            guard error.code == .serverNotTrusted, let next = try await trust.trustAfterRollover() else { throw error }
            // The token endpoint may be on this server, and is then trusted like it.
            let renewed =
                settings.oauth == nil ? credentials : try await self.credentials(next, access, isRenewal: isRenewal)
            client = try makeClient(presenting: known, next, renewed, trust)
            try await client.connect()
        }
        let authorities = try await client.authorities()
        try await trust.remember(try await client.lastingAuthorities(among: authorities), of: authorities)
        return (client, authorities)
    }

    private func makeClient(
        presenting known: Identity?, _ trust: ServerTrust, _ credentials: ServerCredentials,
        _ authorities: AuthorityTrust
    ) throws(CertificateProviderError) -> any EnrolmentProtocol {
        let security = ServerSecurity(
            trust: trust,
            credentials: try (settings.server.isSecure ? known : nil).map {
                identity throws(CertificateProviderError) in
                try TLSCredentials(identity)
            }, now: environment.now, executor: environment.executor)
        let session = authorities.access.session(security, credentials)
        secretsInHand.session = session
        switch settings.enrolmentProtocol {
        case .est:
            return ESTClient(
                settings.server, session: session, now: environment.now, asksForKey: settings.asksForKey)
        case .scep: return try makeSCEPClient(session, authorities)
        }
    }

    private func makeSCEPClient(
        _ session: ServerSession, _ authorities: AuthorityTrust
    ) throws(CertificateProviderError) -> SCEPClient {
        let configuration = try SCEPConfiguration(
            target: settings.server.target, authorityIdentifier: settings.caIdentifier,
            fingerprint: settings.caFingerprint, trustAnchors: authorities.anchors, known: authorities.known,
            confirm: try authorities.confirmation(), permitsTripleDES: settings.permitsTripleDES)
        return SCEPClient(
            configuration,
            challenge: { request async throws(CertificateProviderError) in
                try await challenge(isRenewal: request.current != nil)
            }, now: environment.now, logger: environment.logger,
            transport: { request async throws(CertificateProviderError) in try await session.response(to: request) },
            hasRefusedCredentials: { await session.hasRefusedCredentials })
    }

    func challenge(isRenewal: Bool) async throws(CertificateProviderError) -> SecretBytes? {
        guard let source = settings.challengeSource else { return nil }
        return try await secret(from: source, "Challenge for \(settings.server.authority)", isRenewal: isRenewal)
    }

    private func credentials(
        _ trust: ServerTrust, _ access: ServerAccess, isRenewal: Bool
    ) async throws(CertificateProviderError) -> ServerCredentials {
        let authority = settings.server.authority
        if let oauth = settings.oauth {
            return try await tokens(oauth, trust, access, isRenewal: isRenewal).map { .tokens($0) } ?? .none
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
    ) async throws(CertificateProviderError) -> SecretBytes? {
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
    ) async throws(CertificateProviderError) -> SecretBytes? {
        do throws(CertificateProviderError) {
            return try await secretsInHand.secret(prompt, account) { () async throws(CertificateProviderError) in
                let secret = try await environment.secret(from: source, prompt: prompt, interaction: interaction)
                if let account, source != .prompt, try await environment.isRejected(secret, for: account.name) {
                    throw account.rejectedBefore
                }
                return secret
            }
        } catch {
            guard isRenewal, error.isMissingSecret else { throw error }
            if error.underlying is RejectedBefore { secretsInHand.withheld = error }
            environment.logger.warning(
                "renewing with the current certificate only", metadata: ["reason": "\(error.message)"])
            return nil
        }
    }

    /// Notes the passwords that the server has rejected or accepted in this run, so that a rejected one is not sent again by itself.
    func noteOutcome(_ error: CertificateProviderError?) async {
        // A request that is pending was accepted from this client.
        let rejection = error?.code == .pending ? nil : error
        var accounts = rejection.map(secretsInHand.accounts(rejectedBy:)) ?? secretsInHand.accounts
        // The current certificate may have authenticated a renewal, without the password.
        if rejection == nil, settings.oauth == nil, await secretsInHand.session?.hasSentPassword != true {
            accounts = []
        }
        for (account, secret) in accounts {
            await environment.note(secret, for: account.name, isRejected: rejection != nil)
        }
        if let proxies = secretsInHand.proxies {
            await settings.proxy.noteOutcome(rejection, through: proxies, environment)
        }
    }

    private func tokens(
        _ oauth: OAuthSettings, _ trust: ServerTrust, _ access: ServerAccess, isRenewal: Bool
    ) async throws(CertificateProviderError) -> AccessTokenSource? {
        let endpoint = try await blocking { [settings, environment, transport] () throws(CertificateProviderError) in
            try oauth.endpoint(
                trustLike: trust, through: access.proxies, over: transport.network, timeout: settings.timeout,
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

extension CertificateProviderError {
    /// Whether a secret does not exist, needs a user to enter it, or was rejected before. An unsafe secret is not missing.
    var isMissingSecret: Bool {
        [.fileNotFound, .interactionRequired].contains(code)
            // Other codes have other numbers: a failInfo of SCEP may be 2 as well.
            || code == .configurationInvalid && nativeCode == Int(ENOENT) || underlying is RejectedBefore
    }
}

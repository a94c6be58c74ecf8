import CertificateProviding
import CertificateTLSCore
import OAuth
import ServerTransport

/// How the server is found, and what it knows us by.
extension Enrolment {
    /// Finds the server, and asks it for its authorities.
    ///
    /// - Parameter known: What the server knows this host by.
    /// - Returns: Also the configured trust anchors, one of which may be an authority that the server does not name.
    func connect(
        presenting known: Identity?
    ) async throws(CertificateProviderError) -> (
        client: any EnrolmentProtocol, authorities: [X509Certificate], configured: [X509Certificate]
    ) {
        let proxies = try await settings.proxy.choice(environment, interaction)
        let access = try ServerAccess(settings, environment, pace, through: proxies)
        let trust = try await blocking { () throws(CertificateProviderError) in
            try AuthorityTrust(settings, environment, interaction, access)
        }
        interaction.report("Asking \(settings.server.authority) for its authorities")
        let first = try await trust.serverTrust()
        let credentials = try await credentials(first, access)
        var client = try makeClient(presenting: known, first, credentials, trust)
        do { try await client.connect() } catch {
            guard error.code == .protocolError, let next = try await trust.trustAfterRollover() else { throw error }
            // The token endpoint may be this server, and is known as it is.
            let renewed = settings.oauth == nil ? credentials : try await self.credentials(next, access)
            client = try makeClient(presenting: known, next, renewed, trust)
            try await client.connect()
        }
        let authorities = try await client.authorities()
        try await trust.remember(try await client.lastingAuthorities(among: authorities), of: authorities)
        return (client, authorities, trust.anchors)
    }

    private func makeClient(
        presenting known: Identity?, _ trust: ServerTrust, _ credentials: ServerCredentials,
        _ authorities: AuthorityTrust
    ) throws(CertificateProviderError) -> any EnrolmentProtocol {
        let security = ServerConnection.Security(
            trust: trust,
            credentials: try (settings.server.isSecure ? known : nil).map {
                identity throws(CertificateProviderError) in
                try TLSCredentials(identity)
            }, now: environment.now)
        let session = authorities.access.session(security, credentials)
        switch settings.enrolmentProtocol {
        case .est:
            return ESTClient(
                settings.server, session: session, now: environment.now, asksForKey: settings.asksForKey)
        case .scep: return try makeSCEPClient(session, authorities)
        }
    }

    private func makeSCEPClient(
        _ session: PatientSession, _ authorities: AuthorityTrust
    ) throws(CertificateProviderError) -> SCEPClient {
        let configuration = try SCEPConfiguration(
            target: settings.server.target, authorityIdentifier: settings.caIdentifier,
            fingerprint: settings.caFingerprint, trustAnchors: authorities.anchors, known: authorities.known,
            confirm: try authorities.confirmation(), permitsTripleDES: settings.permitsTripleDES)
        return SCEPClient(
            configuration,
            challenge: { [settings, environment, interaction] request async throws(CertificateProviderError) in
                guard let source = settings.challengeSource else { return nil }
                do throws(CertificateProviderError) {
                    return try await environment.secret(
                        from: source, prompt: "Challenge for \(settings.server.authority)", interaction: interaction)
                } catch {
                    // A renewal is signed with the current certificate. The challenge may have been for once, and be gone;
                    // where it is not, it goes along, since some servers want both.
                    let isGone = [.fileNotFound, .notFound, .interactionRequired].contains(error.code)
                    guard request.current != nil, isGone else { throw error }
                    return nil
                }
            }, now: environment.now, logger: environment.logger
        ) { request async throws(CertificateProviderError) in try await session.response(to: request) }
    }

    private func credentials(
        _ trust: ServerTrust, _ access: ServerAccess
    ) async throws(CertificateProviderError) -> ServerCredentials {
        if let oauth = settings.oauth { return .oauth(try await tokens(oauth, trust, access)) }
        if let source = settings.bearerSource {
            return try .bearer(
                token: try await environment.secret(
                    from: source, prompt: "Token for \(settings.server.authority)", interaction: interaction))
        }
        guard let user = settings.username else { return .none }
        return .password(user: user, try await password(of: user, at: settings.server.authority))
    }

    private func password(
        of user: String, at authority: String
    ) async throws(CertificateProviderError) -> SecretBytes {
        try await environment.secret(
            from: settings.passwordSource ?? .prompt, prompt: "Password of \(user) at \(authority)",
            interaction: interaction)
    }

    private func tokens(
        _ oauth: OAuthSettings, _ trust: ServerTrust, _ access: ServerAccess
    ) async throws(CertificateProviderError) -> AccessTokenSource {
        let endpoint = try await blocking { [settings, environment] () throws(CertificateProviderError) in
            try oauth.endpoint(
                trustLike: trust, through: access.proxies, timeout: settings.timeout, date: environment.now)
        }
        var secret: SecretBytes?
        if let source = oauth.secretSource {
            secret = try await environment.secret(
                from: source, prompt: "Secret of the OAuth client \(oauth.clientID) at \(oauth.authority)",
                interaction: interaction)
        }
        let client = try OAuthClient(oauth.clientID, secret: secret, authentication: oauth.authentication)
        var grant = OAuthGrant.clientCredentials
        if oauth.grant == .password, let user = settings.username {
            grant = .legacyPassword(user: user, password: try await password(of: user, at: oauth.authority))
        }
        return try AccessTokenSource(endpoint, client: client, grant: grant, scopes: oauth.scopes)
    }
}

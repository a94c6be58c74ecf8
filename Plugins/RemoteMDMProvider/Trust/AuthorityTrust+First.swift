import CertificateProviding
import CertificateTLSCore
import ServerTransport

/// The first connection to a server of which no authority is known (RFC 7030, section 4.1.1).
extension AuthorityTrust {
    /// What a person can be expected to compare.
    private static let maximumShown = 4

    /// Asks whoever answers for the authorities, and finds those that the fingerprint or the person means.
    func firstAuthorities() async throws(CertificateProviderError) -> [X509Certificate] {
        // Nothing is asked of a stranger for nobody.
        if fingerprint == nil, !interaction.canAsk { throw nothingConfigured }
        let bag = try await authoritiesFromAnybody()
        guard let fingerprint else {
            let roots = Roots.all(in: bag, at: environment.now())
            try await confirm(roots)
            return roots
        }
        guard let found = bag.first(where: { $0.sha256Fingerprint == fingerprint }) else {
            throw refusal(of: bag, fingerprint)
        }
        guard Roots.all(in: [found], at: environment.now()) == [found] else {
            throw CertificateProviderError(
                .configurationInvalid,
                "'ca-fingerprint' is that of '\(found.subject)', in which no chain can end now; give that of a valid root."
            )
        }
        return [found]
    }

    /// Asks over a connection on which nobody is known and nothing of ours is shown, no certificate either.
    func authoritiesFromAnybody() async throws(CertificateProviderError) -> [X509Certificate] {
        let pins = try await blocking { () throws(CertificateProviderError) in try settings.configuredTrust.pins() }
        return try await authorities(trusting: ServerTrust(trustAnchors: .system, pins: pins), skipsVerification: true)
    }

    /// Asks over a connection on which no password and no token is sent.
    ///
    /// - Parameter identity: Whose certificate is shown.
    func authorities(
        trusting trust: ServerTrust, presenting identity: Identity? = nil, skipsVerification: Bool = false
    ) async throws(CertificateProviderError) -> [X509Certificate] {
        let security = ServerConnection.Security(
            trust: trust,
            credentials: try identity.map { identity throws(CertificateProviderError) in try TLSCredentials(identity) },
            now: environment.now, skipsVerification: skipsVerification)
        let session = access.session(security, .none)
        return try await ESTClient(settings.server, session: session, now: environment.now).authorities()
    }

    /// Lets a person compare the fingerprints of authorities that are known by nothing else.
    ///
    /// - Throws: `configurationInvalid` where nobody can be asked or nothing can be compared, `userCancelled` for a no.
    func confirm(_ authorities: [X509Certificate]) async throws(CertificateProviderError) {
        guard (1...Self.maximumShown).contains(authorities.count) else {
            throw CertificateProviderError(
                .configurationInvalid,
                """
                \(settings.server.authority) names \(authorities.count) certificate authorities where one is to be confirmed; \
                set 'ca-fingerprint' or 'trust-anchors'.
                """)
        }
        let shown = authorities.map { "'\($0.subject)' with the SHA-256 fingerprint \(CAFingerprint.text(of: $0))" }
        let question = """
            Nothing says yet how to know \(settings.server.authority). Its certificate authority is said to be \
            \(shown.joined(separator: ", and ")). Is that what its administrator has told you?
            """
        let isRight: Bool
        do throws(CertificateProviderError) { isRight = try await interaction.confirm(question) } catch {
            if error.code == .interactionRequired { throw nothingConfigured }
            throw error
        }
        guard isRight else {
            throw CertificateProviderError(
                .userCancelled,
                "The authority of \(settings.server.authority) was not confirmed; nothing but the question for it was sent."
            )
        }
    }

    /// How a person is asked for the CA of a SCEP server, where that has to be.
    ///
    /// - Throws: `configurationInvalid` where it has to be, and nobody can be asked.
    func confirmation() throws(CertificateProviderError) -> SCEPConfiguration.Confirmation? {
        guard isToBeConfirmed else { return nil }
        if !interaction.canAsk { throw nothingConfigured }
        return { authorities async throws(CertificateProviderError) in try await confirm(authorities) }
    }

    private var nothingConfigured: CertificateProviderError {
        let remedy =
            settings.enrolmentProtocol == .est
            ? "'trust-anchors' to a PEM file with its authority, 'ca-fingerprint', or 'pin' (with pin-mode=pin-only where this host "
                + "does not know its authority)"
            : "'ca-fingerprint', or 'trust-anchors' to a PEM file with its CA; a pin is for the connection alone"
        return CertificateProviderError(
            .configurationInvalid,
            "Nothing says how to know \(settings.server.authority), and nobody can be asked here: set \(remedy).")
    }

    func refusal(of authorities: [X509Certificate], _ fingerprint: [UInt8]) -> CertificateProviderError {
        let seen = authorities.filter(\.isSelfIssued).prefix(Self.maximumShown)
            .map { "'\($0.subject)' (\($0.sha256Fingerprint.hexEncoded))" }
        return CertificateProviderError(
            .protocolError,
            """
            \(settings.server.authority) does not have the configured authority: the fingerprint \(fingerprint.hexEncoded) is \
            not among those of its certificates, \(seen.joined(separator: ", ")). Nothing secret was sent.
            """)
    }
}

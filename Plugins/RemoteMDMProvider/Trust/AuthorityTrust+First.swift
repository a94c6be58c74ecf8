import CertificateProviding
import CertificateTLS
import ProviderTransport

/// The first connection to a server whose CA is not known yet (RFC 7030, section 4.1.1).
extension AuthorityTrust {
    /// The number of fingerprints that a user can be expected to compare.
    private static let maximumShown = 4

    /// Asks the unverified server for its authorities, and returns those that the CA fingerprint or the user confirms.
    func firstAuthorities() async throws(CertificateProviderError) -> [X509Certificate] {
        // Without a user to confirm the answer, nothing is sent to an unknown server.
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
                "'ca-fingerprint' is that of '\(found.subject)', which is not a valid root certificate; set it to "
                    + "that of a valid root.")
        }
        return [found]
    }

    /// Asks over an unverified connection, on which no secret is sent and no certificate is presented.
    func authoritiesFromAnybody() async throws(CertificateProviderError) -> [X509Certificate] {
        let pins = try await blocking { () throws(CertificateProviderError) in try settings.configuredTrust.pins() }
        return try await authorities(trusting: ServerTrust(trustAnchors: .system, pins: pins), skipsVerification: true)
    }

    /// Asks for the authorities over a connection on which no password and no token is sent.
    ///
    /// - Parameter identity: The identity to present, if any.
    func authorities(
        trusting trust: ServerTrust, presenting identity: Identity? = nil, skipsVerification: Bool = false
    ) async throws(CertificateProviderError) -> [X509Certificate] {
        let security = ServerSecurity(
            trust: trust,
            credentials: try identity.map { identity throws(CertificateProviderError) in try TLSCredentials(identity) },
            now: environment.now, executor: environment.executor, skipsVerification: skipsVerification)
        let session = access.session(security, .none)
        return try await ESTClient(settings.server, session: session, now: environment.now).authorities()
    }

    /// Asks the user to compare the fingerprints of unverified authorities.
    ///
    /// - Throws: `configurationInvalid` if there is no user to ask, or none or too many authorities to compare;
    ///   `userCancelled` if the user declines.
    func confirm(_ authorities: [X509Certificate]) async throws(CertificateProviderError) {
        guard (1...Self.maximumShown).contains(authorities.count) else {
            throw CertificateProviderError(
                .configurationInvalid,
                """
                \(settings.server.authority) names \(authorities.count) certificate authorities, and a user can \
                confirm 1 to \(Self.maximumShown); set 'ca-fingerprint' or 'trust-anchors'.
                """)
        }
        let shown = authorities.map { "'\($0.subject)' with the SHA-256 fingerprint \(CAFingerprint.text(of: $0))" }
        let question = """
            No trust anchor is configured for \(settings.server.authority). It names as its certificate authority \
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
                "The authority of \(settings.server.authority) was not confirmed; only the request for its "
                    + "certificates was sent.")
        }
    }

    /// Returns how the user confirms the CA of a SCEP server; `nil` if that is not needed.
    ///
    /// - Throws: `configurationInvalid` if it is needed and there is no user to ask.
    func confirmation() throws(CertificateProviderError) -> SCEPConfiguration.Confirmation? {
        guard isToBeConfirmed else { return nil }
        if !interaction.canAsk { throw nothingConfigured }
        return { authorities async throws(CertificateProviderError) in try await confirm(authorities) }
    }

    private var nothingConfigured: CertificateProviderError {
        let remedy =
            settings.enrolmentProtocol == .est
            ? "'trust-anchors' to a PEM file with its CA, 'ca-fingerprint', or 'pin' (with pin-mode=pin-only if its "
                + "CA is not in the system trust store)"
            : "'ca-fingerprint', or 'trust-anchors' to a PEM file with its CA; a pin authenticates only the connection"
        return CertificateProviderError(
            .configurationInvalid,
            "No trust anchor is configured for \(settings.server.authority), and there is no terminal to ask at. Set "
                + "\(remedy).")
    }

    func refusal(of authorities: [X509Certificate], _ fingerprint: [UInt8]) -> CertificateProviderError {
        let seen = authorities.filter(\.isSelfIssued).prefix(Self.maximumShown)
            .map { "'\($0.subject)' (\(DisplayText.hexadecimal($0.sha256Fingerprint)))" }
        return CertificateProviderError(
            .serverNotTrusted,
            """
            \(settings.server.authority) does not have the configured CA: the fingerprint \(DisplayText.hexadecimal(fingerprint)) is \
            not among those of its certificates, \(seen.joined(separator: ", ")). Nothing secret was sent; \
            check 'url' and 'ca-fingerprint'.
            """)
    }
}

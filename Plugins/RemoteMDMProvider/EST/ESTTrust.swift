import CertificateProviding
import CertificateTLS
import Enrolment
import ProviderTransport

/// The trust in an EST server's connection: by the configured anchors, by the authorities that are remembered, or by those that the
/// server names on a first connection and that the fingerprint or the user confirms (RFC 7030, section 4.1.1).
struct ESTTrust: Sendable {
    private let run: ServerRun
    private let shared: AuthorityTrust
    private var settings: EnrolmentSettings { run.settings }
    private var anchors: [X509Certificate] { shared.anchors }
    private var known: [X509Certificate] { shared.known }
    private let first = CachedAnswer<ServerTrust>()

    init(_ run: ServerRun) { (self.run, shared) = (run, run.trust) }

    /// Returns the trust for connections to the server. An authority that is confirmed here, or found by its
    /// fingerprint, is stored only after the server has authenticated with it.
    ///
    /// - Throws: `configurationInvalid` if nothing is configured and there is no user to ask, `userCancelled` if the
    ///   user declines, `serverNotTrusted` if the server does not have the configured CA.
    func serverTrust(presenting identity: Identity?) async throws(ProviderError) -> ServerTrust {
        try await first { () async throws(ProviderError) in try await findTrust(presenting: identity) }
    }

    private func findTrust(presenting identity: Identity?) async throws(ProviderError) -> ServerTrust {
        let fingerprint = settings.caFingerprint
        let isToBeFound = anchors.isEmpty && known.isEmpty && (fingerprint != nil || !settings.configuredTrust.hasPins)
        if fingerprint != nil, !anchors.isEmpty, known.isEmpty {
            // With trust anchors as well, both must fit before a password or a token is sent.
            let trust = try await trust(in: [])
            try requireFingerprint(among: try await authorities(trusting: trust, presenting: identity))
            return trust
        }
        return try await trust(in: isToBeFound ? try await firstAuthorities() : known)
    }

    /// Returns the trust after a rollover of the root, when the server is not trusted any more: it names a new root
    /// that a known one has certified. `nil` if it does not.
    func trustAfterRollover() async throws(ProviderError) -> ServerTrust? {
        guard !known.isEmpty, !settings.isPinOnly, let bag = try? await authoritiesFromAnybody() else { return nil }
        let successors = await Roots.successors(in: bag, of: anchors + known, at: run.environment.now())
        return successors.isEmpty ? nil : try await trust(in: known + successors)
    }

    /// Stores the authorities that the server has named over an authenticated connection, for the next run.
    ///
    /// - Parameters:
    ///   - authorities: All that the server has named.
    ///   - lasting: Those to store.
    /// - Throws: `serverNotTrusted` if none of them has the configured CA fingerprint.
    func remember(
        _ lasting: [X509Certificate], of authorities: [X509Certificate]
    ) async throws(ProviderError) {
        // Once both have fitted, the server may have moved on from there.
        if !anchors.isEmpty, known.isEmpty { try requireFingerprint(among: authorities) }
        try await shared.remember(lasting)
    }

    private func requireFingerprint(among authorities: [X509Certificate]) throws(ProviderError) {
        guard let fingerprint = settings.caFingerprint,
            !authorities.contains(where: { $0.sha256Fingerprint == fingerprint })
        else { return }
        throw refusal(of: authorities, fingerprint)
    }

    private func trust(in authorities: [X509Certificate]) async throws(ProviderError) -> ServerTrust {
        let file = settings.configuredTrust.anchorsFile.map { TrustAnchors.pemFile($0).name }
        let remembered = authorities.isEmpty ? nil : "the CAs that are remembered for this server"
        let all = TrustAnchors.certificates(anchors + authorities)
            .named([file, remembered].compactMap(\.self).joined(separator: ", and "))
        guard !anchors.isEmpty || settings.configuredTrust.hasPins else { return ServerTrust(trustAnchors: all) }
        // The system trust store is meant for the web, and is never used implicitly for an enrolment server: a pin is configured.
        var trust = try await run.connectionTrust()
        if !anchors.isEmpty || !authorities.isEmpty { trust.trustAnchors = all }
        return trust
    }

    /// Asks the unverified server for its authorities, and returns those that the CA fingerprint or the user confirms.
    private func firstAuthorities() async throws(ProviderError) -> [X509Certificate] {
        // Without a user to confirm the answer, nothing is sent to an unknown server.
        if settings.caFingerprint == nil { try shared.requireUser() }
        let bag = try await authoritiesFromAnybody()
        let now = run.environment.now()
        guard let fingerprint = settings.caFingerprint else {
            let roots = Roots.all(in: bag, at: now)
            try await shared.confirm(roots)
            return roots
        }
        guard let found = bag.first(where: { $0.sha256Fingerprint == fingerprint }) else {
            throw refusal(of: bag, fingerprint)
        }
        guard Roots.all(in: [found], at: now) == [found] else {
            throw ProviderError(
                .configurationInvalid,
                "'ca-fingerprint' is that of '\(found.subject)', which is not a valid root certificate; set it to "
                    + "that of a valid root.")
        }
        return [found]
    }

    /// Asks over an unverified connection, on which no secret is sent and no certificate is presented.
    private func authoritiesFromAnybody() async throws(ProviderError) -> [X509Certificate] {
        let pins = try await run.environment.executor.run { [settings] () throws(ProviderError) in
            try settings.configuredTrust.pins()
        }
        return try await authorities(trusting: ServerTrust(trustAnchors: .system, pins: pins), skipsVerification: true)
    }

    /// Asks for the authorities over a connection on which no password and no token is sent.
    ///
    /// - Parameter identity: The identity to present, if any.
    private func authorities(
        trusting trust: ServerTrust, presenting identity: Identity? = nil, skipsVerification: Bool = false
    ) async throws(ProviderError) -> [X509Certificate] {
        let security = ServerSecurity(
            trust: trust,
            credentials: try identity.map { identity throws(ProviderError) in try TLSCredentials(identity) },
            now: run.environment.now, executor: run.environment.executor, skipsVerification: skipsVerification)
        let session = run.access.session(security, .none)
        return try await ESTClient(settings.server, session: session, now: run.environment.now).authorities()
    }

    private func refusal(of authorities: [X509Certificate], _ fingerprint: [UInt8]) -> ProviderError {
        let seen = authorities.filter(\.isSelfIssued).prefix(AuthorityTrust.maximumShown)
            .map { "'\($0.subject)' (\(DisplayText.hexadecimal($0.sha256Fingerprint)))" }
        return ProviderError(
            .serverNotTrusted,
            """
            \(settings.server.authority) does not have the configured CA: the fingerprint \(DisplayText.hexadecimal(fingerprint)) is \
            not among those of its certificates, \(seen.joined(separator: ", ")). Nothing secret was sent; \
            check 'url' and 'ca-fingerprint'.
            """)
    }
}

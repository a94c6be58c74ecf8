import CertificateProviding
import CertificateTLS
import Crypto
import FoundationEssentials
import Logging
import ProviderTransport

/// The certificate authorities that authenticate the enrolment server: those that are configured, those that the user
/// has confirmed, and those that the server has named over authenticated connections.
struct AuthorityTrust: Sendable {
    let settings: EnrolmentSettings
    let environment: ProviderEnvironment
    let interaction: any UserInteraction
    let access: ServerAccess
    /// The configured trust anchors.
    let anchors: [X509Certificate]
    /// The configured CA fingerprint.
    let fingerprint: [UInt8]?
    /// The authorities that were learnt under this configuration and have not expired.
    let known: [X509Certificate]
    /// Whether authorities are stored, also of another configuration.
    private let hasRecord: Bool
    /// Identifies the configuration under which authorities are learnt. `nil` if none are learnt: a pin is configured
    /// with the system trust store. With SCEP, these authenticate only the connection, and not the CA.
    private let basis: [UInt8]?
    private let first = CachedAnswer<ServerTrust>()

    /// Blocks while the file of trust anchors and the store are read.
    init(
        _ settings: EnrolmentSettings, _ environment: ProviderEnvironment, _ interaction: any UserInteraction,
        _ access: ServerAccess
    ) throws(CertificateProviderError) {
        self.settings = settings
        self.environment = environment
        self.interaction = interaction
        self.access = access
        let (anchors, fingerprint) = (try settings.configuredTrust.anchors(), settings.caFingerprint)
        let isPinAll = anchors.isEmpty && fingerprint == nil && settings.configuredTrust.hasPins
        let basis =
            settings.enrolmentProtocol == .est && isPinAll
            ? nil : Self.digest(anchors: anchors, fingerprint: fingerprint)
        let record = try environment.storage.record(named: settings.authoritiesRecordName)
            .map { record throws(CertificateProviderError) in try KnownAuthorities(record) }
        let now = environment.now()
        (self.anchors, self.fingerprint, self.basis) = (anchors, fingerprint, basis)
        hasRecord = record != nil
        known = record.map { $0.basis == basis ? $0.certificates.filter { $0.notValidAfter > now } : [] } ?? []
    }

    /// Whether the user has to confirm the server's CA.
    var isToBeConfirmed: Bool {
        // The trust in an EST server's connection covers its CA.
        let isKnownByPin = settings.enrolmentProtocol == .est && settings.configuredTrust.hasPins
        return anchors.isEmpty && fingerprint == nil && known.isEmpty && !isKnownByPin
    }

    private static func digest(anchors: [X509Certificate], fingerprint: [UInt8]?) -> [UInt8] {
        let digests = anchors.map(\.sha256Fingerprint).sorted { $0.lexicographicallyPrecedes($1) }
        return Array(SHA256.hash(data: (fingerprint.map { [1] + $0 } ?? [0]) + digests.joined()))
    }

    /// Returns the trust for connections to the server. An authority that is confirmed here, or found by its
    /// fingerprint, is stored only after the server has authenticated with it.
    ///
    /// - Throws: `configurationInvalid` if nothing is configured and there is no user to ask, `userCancelled` if the
    ///   user declines, `serverNotTrusted` if the server does not have the configured CA.
    func serverTrust(presenting identity: Identity?) async throws(CertificateProviderError) -> ServerTrust {
        try await first { () async throws(CertificateProviderError) in try await findTrust(presenting: identity) }
    }

    private func findTrust(presenting identity: Identity?) async throws(CertificateProviderError) -> ServerTrust {
        guard settings.enrolmentProtocol == .est else { return try await blocking(settings.trust) }
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
    func trustAfterRollover() async throws(CertificateProviderError) -> ServerTrust? {
        guard settings.enrolmentProtocol == .est, !known.isEmpty, !settings.isPinOnly,
            let bag = try? await authoritiesFromAnybody()
        else { return nil }
        let successors = await Roots.successors(in: bag, of: anchors + known, at: environment.now())
        return successors.isEmpty ? nil : try await trust(in: known + successors)
    }

    /// Stores the authorities that the server has named over an authenticated connection, for the next run.
    ///
    /// - Parameters:
    ///   - authorities: All that the server has named.
    ///   - lasting: Those to store; `nil` to leave the stored ones unchanged.
    /// - Throws: `serverNotTrusted` if none of them has the configured CA fingerprint.
    func remember(
        _ lasting: [X509Certificate]?, of authorities: [X509Certificate]
    ) async throws(CertificateProviderError) {
        // Once both have fitted, the server may have moved on from there.
        if !anchors.isEmpty, known.isEmpty, settings.enrolmentProtocol == .est {
            try requireFingerprint(among: authorities)
        }
        guard let basis, let lasting, !lasting.isEmpty, hasRecord || !isConfigured(lasting) else { return }
        // What is configured stays trusted for as long as it is.
        let configured = known.filter { $0.sha256Fingerprint == fingerprint && !lasting.contains($0) }
        guard Set(lasting + configured) != Set(known) else { return }
        let new = KnownAuthorities(basis: basis, certificates: lasting + configured)
        try await blocking { () throws(CertificateProviderError) in
            try environment.storage.updateRecord(named: settings.authoritiesRecordName) { _ in new.encoded }
        }
        environment.logger.debug(
            "authorities remembered", metadata: ["subjects": "\(new.certificates.map(\.subject))"])
    }

    /// Whether the configuration alone makes all of `authorities` trust anchors of a SCEP server. Of an EST server the
    /// fingerprint does not authenticate the connection: its root has to be remembered.
    private func isConfigured(_ authorities: [X509Certificate]) -> Bool {
        settings.enrolmentProtocol == .scep
            && authorities.allSatisfy { anchors.isEmpty ? $0.sha256Fingerprint == fingerprint : anchors.contains($0) }
    }

    private func requireFingerprint(among authorities: [X509Certificate]) throws(CertificateProviderError) {
        guard let fingerprint, !authorities.contains(where: { $0.sha256Fingerprint == fingerprint }) else { return }
        throw refusal(of: authorities, fingerprint)
    }

    /// Deletes the authorities that were confirmed or learnt. Blocks on the store.
    static func forget(
        _ settings: EnrolmentSettings, in storage: any IdentityStorage
    ) throws(CertificateProviderError) {
        try storage.removeRecord(named: settings.authoritiesRecordName)
    }

    private func trust(in authorities: [X509Certificate]) async throws(CertificateProviderError) -> ServerTrust {
        let file = settings.configuredTrust.anchorsFile.map { TrustAnchors.pemFile($0).name }
        let remembered = authorities.isEmpty ? nil : "the CAs that are remembered for this server"
        let all = TrustAnchors.certificates(anchors + authorities)
            .named([file, remembered].compactMap(\.self).joined(separator: ", and "))
        guard !anchors.isEmpty || settings.configuredTrust.hasPins else { return ServerTrust(trustAnchors: all) }
        var trust = try await blocking(settings.trust)
        if !anchors.isEmpty || !authorities.isEmpty { trust.trustAnchors = all }
        return trust
    }

    func blocking<T: Sendable>(
        _ work: @escaping @Sendable () throws(CertificateProviderError) -> T
    ) async throws(CertificateProviderError) -> T {
        try await environment.executor.run(work)
    }
}

extension EnrolmentSettings {
    var authoritiesRecordName: String { "authorities-\(entryName)" }
}

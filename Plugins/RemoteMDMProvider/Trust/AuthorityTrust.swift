import CertificateProviding
import CertificateTLSCore
import Crypto
import FoundationEssentials
import Logging

/// By which certificate authorities an enrolment knows its server: those that are configured, those that a person has
/// confirmed, and those that the server has named since over connections on which it was known.
struct AuthorityTrust: Sendable {
    let settings: EnrolmentSettings
    let environment: ProviderEnvironment
    let interaction: any UserInteraction
    let access: ServerAccess
    /// Configured.
    let anchors: [X509Certificate]
    /// Configured.
    let fingerprint: [UInt8]?
    /// Learnt under this configuration, and not expired.
    let known: [X509Certificate]
    /// `nil` where nothing is to be learnt: a pin and the host's list of authorities are configured. With SCEP these
    /// speak for the connection only, and not for the CA.
    private let basis: [UInt8]?
    private let first = CachedAnswer<ServerTrust>()

    /// Blocks on the trust anchors' file and the store.
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
            .flatMap { record throws(CertificateProviderError) in try KnownAuthorities(record) }
        let now = environment.now()
        (self.anchors, self.fingerprint, self.basis) = (anchors, fingerprint, basis)
        known = record.map { $0.basis == basis ? $0.certificates.filter { $0.notValidAfter > now } : [] } ?? []
    }

    /// Whether a person has to say by what the server is known.
    var isToBeConfirmed: Bool {
        // What is configured for an EST server's connection speaks for its authority.
        let isKnownByPin = settings.enrolmentProtocol == .est && settings.configuredTrust.hasPins
        return anchors.isEmpty && fingerprint == nil && known.isEmpty && !isKnownByPin
    }

    private static func digest(anchors: [X509Certificate], fingerprint: [UInt8]?) -> [UInt8] {
        let digests = anchors.map(\.sha256Fingerprint).sorted { $0.lexicographicallyPrecedes($1) }
        return Array(SHA256.hash(data: (fingerprint.map { [1] + $0 } ?? [0]) + digests.joined()))
    }

    /// Whom to trust on a connection to an EST server. What is confirmed or found by its fingerprint here is not
    /// remembered before the server has shown that it is known by it.
    ///
    /// - Throws: `configurationInvalid` where nothing is configured and nobody can be asked, `userCancelled` where the
    ///   person says no, `protocolError` for an authority that is not the configured one.
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

    /// Whom to trust after a server that is not known any more has named a root that a known one vouches for. `nil`
    /// where it does not.
    func trustAfterRollover() async throws(CertificateProviderError) -> ServerTrust? {
        guard settings.enrolmentProtocol == .est, !known.isEmpty, !settings.isPinOnly,
            let bag = try? await authoritiesFromAnybody()
        else { return nil }
        let successors = await Roots.successors(in: bag, of: anchors + known, at: environment.now())
        return successors.isEmpty ? nil : try await trust(in: known + successors)
    }

    /// Keeps what the server has named over a connection on which it was known, for the next run.
    ///
    /// - Parameters:
    ///   - authorities: All of them.
    ///   - lasting: Those that others lead to; `nil` where nothing is known about that.
    /// - Throws: `protocolError` for a server without the authority that is configured by its fingerprint.
    func remember(
        _ lasting: [X509Certificate]?, of authorities: [X509Certificate]
    ) async throws(CertificateProviderError) {
        // Once both have fitted, the server may have moved on from there.
        if !anchors.isEmpty, known.isEmpty, settings.enrolmentProtocol == .est {
            try requireFingerprint(among: authorities)
        }
        guard let basis, let lasting, !lasting.isEmpty else { return }
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

    private func requireFingerprint(among authorities: [X509Certificate]) throws(CertificateProviderError) {
        guard let fingerprint, !authorities.contains(where: { $0.sha256Fingerprint == fingerprint }) else { return }
        throw refusal(of: authorities, fingerprint)
    }

    /// Forgets what was confirmed and learnt. Blocks on the store.
    static func forget(
        _ settings: EnrolmentSettings, in storage: any IdentityStorage
    ) throws(CertificateProviderError) {
        try storage.updateRecord(named: settings.authoritiesRecordName) { $0.map { _ in SecretBytes(copying: []) } }
    }

    private func trust(in authorities: [X509Certificate]) async throws(CertificateProviderError) -> ServerTrust {
        let all = anchors + authorities
        guard !anchors.isEmpty || settings.configuredTrust.hasPins else {
            return ServerTrust(trustAnchors: .certificates(all))
        }
        var trust = try await blocking(settings.trust)
        if !all.isEmpty { trust.trustAnchors = .certificates(all) }
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

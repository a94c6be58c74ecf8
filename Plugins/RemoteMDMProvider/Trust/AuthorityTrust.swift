import CertificateProviding
import Crypto
import Enrolment
import Logging
import ProviderTransport

/// The certificate authorities of an enrolment server: those that are configured, those that the user has confirmed, and those that
/// the server has named over authenticated connections.
struct AuthorityTrust: Sendable {
    /// The rules of a protocol.
    struct Rules: Sendable {
        /// Whether a pin for the connection authenticates the CA as well.
        let pinsCoverAuthority: Bool
        /// The settings that authenticate the CA, for messages: they follow 'Set'.
        let remedy: String
    }

    private let settings: EnrolmentSettings
    private let environment: ProviderEnvironment
    private let interaction: any UserInteraction
    private let rules: Rules
    /// The configured trust anchors.
    let anchors: [X509Certificate]
    /// The authorities that were learnt under this configuration and have not expired.
    let known: [X509Certificate]
    /// Whether authorities are stored, also of another configuration.
    let hasRecord: Bool
    /// Identifies the configuration under which authorities are learnt. `nil` if none are learnt: a pin is configured
    /// with the system trust store, and authenticates the CA.
    private let basis: [UInt8]?
    private var fingerprint: [UInt8]? { settings.caFingerprint }

    /// The number of fingerprints that a user can be expected to compare.
    static let maximumShown = 4

    /// Blocks while the file of trust anchors and the store are read.
    init(
        _ settings: EnrolmentSettings, _ environment: ProviderEnvironment, _ interaction: any UserInteraction,
        _ rules: Rules
    ) throws(ProviderError) {
        (self.settings, self.environment) = (settings, environment)
        (self.interaction, self.rules) = (interaction, rules)
        let (anchors, fingerprint) = (try settings.configuredTrust.anchors(), settings.caFingerprint)
        let isPinAll = anchors.isEmpty && fingerprint == nil && settings.configuredTrust.hasPins
        let basis =
            isPinAll && rules.pinsCoverAuthority ? nil : Self.digest(anchors: anchors, fingerprint: fingerprint)
        let record = try environment.storage.record(named: settings.authoritiesRecordName)
            .map { record throws(ProviderError) in try KnownAuthorities(record) }
        let now = environment.now()
        (self.anchors, self.basis) = (anchors, basis)
        hasRecord = record != nil
        known = record.map { $0.basis == basis ? $0.certificates.filter { $0.notValidAfter > now } : [] } ?? []
    }

    /// Whether the user has to confirm the server's CA.
    var isToBeConfirmed: Bool {
        let isKnownByPin = rules.pinsCoverAuthority && settings.configuredTrust.hasPins
        return anchors.isEmpty && fingerprint == nil && known.isEmpty && !isKnownByPin
    }

    private static func digest(anchors: [X509Certificate], fingerprint: [UInt8]?) -> [UInt8] {
        let digests = anchors.map(\.sha256Fingerprint).sorted { $0.lexicographicallyPrecedes($1) }
        return Array(SHA256.hash(data: (fingerprint.map { [1] + $0 } ?? [0]) + digests.joined()))
    }

    /// Stores the authorities that the server has named over an authenticated connection, for the next run.
    func remember(_ lasting: [X509Certificate]) async throws(ProviderError) {
        guard let basis, !lasting.isEmpty else { return }
        // A configured authority stays trusted for as long as it is configured.
        let configured = known.filter { $0.sha256Fingerprint == fingerprint && !lasting.contains($0) }
        guard Set(lasting + configured) != Set(known) else { return }
        let new = KnownAuthorities(basis: basis, certificates: lasting + configured)
        let encoded = try new.encoded()
        try await environment.executor.run { () throws(ProviderError) in
            try environment.storage.updateRecord(named: settings.authoritiesRecordName) { _ in encoded }
        }
        environment.logger.debug(
            "authorities remembered", metadata: ["subjects": "\(new.certificates.map(\.subject))"])
    }

    /// Deletes the authorities that were confirmed or learnt. Blocks on the store.
    static func forget(
        _ settings: EnrolmentSettings, in storage: any IdentityStorage
    ) throws(ProviderError) {
        try storage.removeRecord(named: settings.authoritiesRecordName)
    }

    /// Asks the user to compare the fingerprints of unverified authorities.
    ///
    /// - Throws: `configurationInvalid` if there is no user to ask, or none or too many authorities to compare;
    ///   `userCancelled` if the user declines.
    func confirm(_ authorities: [X509Certificate]) async throws(ProviderError) {
        guard (1...Self.maximumShown).contains(authorities.count) else {
            throw ProviderError(
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
        do throws(ProviderError) { isRight = try await interaction.confirm(question) } catch {
            if error.code == .interactionRequired { throw nothingConfigured }
            throw error
        }
        guard isRight else {
            throw ProviderError(
                .userCancelled,
                "The authority of \(settings.server.authority) was not confirmed; only the request for its "
                    + "certificates was sent.")
        }
    }

    /// - Throws: `configurationInvalid` if there is no user to ask.
    func requireUser() throws(ProviderError) { if !interaction.canAsk { throw nothingConfigured } }

    private var nothingConfigured: ProviderError {
        ProviderError(
            .configurationInvalid,
            "No trust anchor is configured for \(settings.server.authority), and there is no terminal to ask at. Set "
                + "\(rules.remedy).")
    }
}

extension EnrolmentSettings {
    var authoritiesRecordName: String { "authorities-\(plan.storageName)" }
}

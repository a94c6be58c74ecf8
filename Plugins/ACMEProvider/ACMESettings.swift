import CertificateProviding
import CertificateTLS
import Enrolment
import ProviderTransport

/// The parameters, parsed and checked.
struct ACMESettings: Sendable {
    let directory: ServerURL
    let contact: [String]
    let agreedTerms: String?
    let eabKeyID: String?
    let eabKeySource: SecretSource?
    let eabAlgorithm: ACMEParameter.EABAlgorithm
    let accountKeyStore: any KeyStore
    let identifiers: [ACMEIdentifier]
    let challenge: ChallengeKind
    let httpListen: ListenAddress
    let httpRoot: String?
    let tlsListen: ListenAddress
    let dnsHook: String?
    let profile: String?
    let preferredChain: String?
    let proxy: ProxySettings
    let plan: EnrolmentPlan
    /// The name of the account's records. Identities of one server share the account.
    let accountName: String
    private let configuredTrust: ConfiguredTrust
    private let usesSystemStore: Bool
    private let caFingerprint: [UInt8]?
    private let isPinOnly: Bool

    /// - Throws: `configurationInvalid`.
    init(_ parameters: Parameters) throws(ProviderError) {
        directory = parameters[ACMEParameter.directory]
        contact = parameters[ACMEParameter.contact]
        agreedTerms = parameters[ACMEParameter.agreeTerms]
        eabKeyID = parameters[ACMEParameter.eabKeyID]
        eabKeySource = parameters[ACMEParameter.eabKeySource]
        eabAlgorithm = parameters[ACMEParameter.eabAlgorithm]
        accountKeyStore = parameters[ACMEParameter.accountKey]
        let identifiers = parameters[ACMEParameter.identifiers]
        self.identifiers = identifiers
        challenge = parameters[ACMEParameter.challenge]
        httpListen = parameters[ACMEParameter.httpListen]
        httpRoot = parameters[ACMEParameter.httpRoot]
        tlsListen = parameters[ACMEParameter.tlsListen]
        dnsHook = parameters[ACMEParameter.dnsHook]
        profile = parameters[ACMEParameter.profile]
        preferredChain = parameters[ACMEParameter.preferredChain]
        proxy = try ProxySettings(parameters)
        usesSystemStore = parameters[ACMEParameter.trustAnchors] == "system"
        configuredTrust = ConfiguredTrust(
            anchors: ACMEParameter.trustAnchors, pins: ACMEParameter.pin, in: parameters)
        caFingerprint = parameters[ACMEParameter.caFingerprint]
        isPinOnly = parameters[ACMEParameter.pinMode]
        let names = try parameters.reading(ACMEParameter.subject) { () throws(ProviderError) in
            try CertificateRequest.Names(
                subject: parameters[ACMEParameter.subject],
                subjectAlternativeNames: identifiers.map(\.alternativeName))
        }
        let (url, usage) = (directory.origin + directory.target, parameters[IdentityUsage.parameter])
        var plan = EnrolmentPlan(
            names: names, usage: usage, keyStore: parameters[ACMEParameter.key],
            keyType: parameters[ACMEParameter.keyType],
            timeout: parameters[ACMEParameter.timeout],
            storageName: StoredIdentity.name(
                distinguishedBy: [
                    url, names.subjectText, identifiers.map { "\($0.type):\($0.value)" }.joined(separator: ","),
                    profile ?? "",
                ] + usage.distinguishingProperties))
        plan.subjectRule = parameters[ACMEParameter.names] == .server ? .server : .required
        self.plan = plan
        accountName = StoredIdentity.name(distinguishedBy: ["account", url, eabKeyID ?? ""])
        try check(parameters)
    }

    private func check(_ parameters: Parameters) throws(ProviderError) {
        if directory.isSecure, !configuredTrust.isConfigured, caFingerprint == nil {
            throw parameters.invalid(
                ACMEParameter.trustAnchors,
                "is missing; set it to a PEM file with the CA of \(directory.authority), or to system for a public CA, or set "
                    + "'ca-fingerprint' or 'pin'")
        }
        guard !isPinOnly || configuredTrust.hasPins else {
            throw parameters.invalid(ACMEParameter.pinMode, "is pin-only, which needs a 'pin'")
        }
        guard challenge != .dns || dnsHook != nil else {
            throw parameters.invalid(ACMEParameter.dnsHook, "is missing; dns-01 needs a program that publishes records")
        }
        if challenge != .dns, challenge != .none, let name = identifiers.first(where: \.isWildcard) {
            throw parameters.invalid(
                ACMEParameter.identifiers, "has the wildcard \(name), which only challenge=dns-01 can prove")
        }
        if challenge == .dns, let name = identifiers.first(where: { $0.type == "ip" }) {
            throw parameters.invalid(
                ACMEParameter.identifiers, "has \(name), which dns-01 cannot prove; use http-01 or tls-alpn-01")
        }
    }

    /// The error for a key that cannot answer `device-attest-01`.
    var keyCannotAttest: ProviderError {
        ProviderError(
            .configurationInvalid,
            """
            'challenge' is device-attest-01, and a key of the key store '\(plan.keyStore.scheme):' cannot prove where it lives; set \
            'key' to a key store that can, such as one of a TPM with a CA for its attestation key.
            """)
    }

    /// Returns the trust for the TLS connection. Blocks while files are read.
    func serverTrust() throws(ProviderError) -> ServerTrust {
        if usesSystemStore {
            return ServerTrust(trustAnchors: .system, pins: try configuredTrust.pins(), isPinOnly: isPinOnly)
        }
        var trust = try configuredTrust.serverTrust(isPinOnly: isPinOnly)
        trust.presentedAuthority = caFingerprint
        return trust
    }

    /// Returns the configured trust anchors, which may also be the issuers of what the server issues. Blocks on the file.
    func anchors() throws(ProviderError) -> [X509Certificate] {
        usesSystemStore ? [] : try configuredTrust.anchors()
    }
}

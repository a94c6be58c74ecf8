import CertificateProviding
import CertificateTLSCore
import Crypto
import FoundationEssentials
import RemoteMDMParameters
import ServerTransport

/// The parameters, checked.
struct EnrolmentSettings: Sendable {
    enum EnrolmentKind: String { case est, scep }

    let enrolmentProtocol: EnrolmentKind
    let server: ServerURL
    /// Of the connection.
    let configuredTrust: ConfiguredTrust
    let caFingerprint: [UInt8]?
    /// Of SCEP.
    let caIdentifier: String?
    /// Of SCEP.
    let permitsTripleDES: Bool
    let isPinOnly: Bool
    let username: String?
    let passwordSource: SecretSource?
    let bearerSource: SecretSource?
    let oauth: OAuthSettings?
    let clientCertificate: ClientCertificate?
    let challengeSource: SecretSource?
    let names: CertificateRequest.Names
    /// Whether the server makes the key.
    let asksForKey: Bool
    /// `nil` where the server may choose.
    let keyType: KeyType?
    /// Where new keys live; `nil` for the store.
    let token: TokenLocation?
    let proxy: ProxySettings
    /// What the server may take for all that it is asked in a run, and how long a decision is waited for besides.
    let timeout: Duration
    /// The entry in the store. Another server or subject is another identity, and must never be answered from this one.
    let entryName: String

    init(_ parameters: ProviderParameters, provider: ProviderID) throws(CertificateProviderError) {
        func choice<T: RawRepresentable>(
            _ name: String, _ standard: T, _ words: String
        ) throws(CertificateProviderError) -> T where T.RawValue == String {
            guard let text = parameters.string(name) else { return standard }
            guard let value = T(rawValue: text) else {
                throw parameters.invalid(name, "must be \(words)", provider: provider)
            }
            return value
        }
        let chosen = try parameters.requiredString(Parameter.protocol, provider: provider)
        guard let enrolmentProtocol = EnrolmentKind(rawValue: chosen) else {
            throw parameters.invalid(Parameter.protocol, "must be est or scep", provider: provider)
        }
        self.enrolmentProtocol = enrolmentProtocol
        let url = try parameters.requiredString(Parameter.url, provider: provider)
        guard let server = ServerURL(url) else {
            throw parameters.invalid(Parameter.url, "is no URL of a server", provider: provider)
        }
        guard enrolmentProtocol != .est || (server.isSecure && server.query == nil) else {
            throw parameters.invalid(
                Parameter.url, "must be https://HOST[:PORT][/LABEL] for EST (RFC 7030)", provider: provider)
        }
        self.server = server
        configuredTrust = try ConfiguredTrust(
            anchors: Parameter.trustAnchors, pins: Parameter.pin, in: parameters, provider: provider)
        try parameters.refuseEmpty(Parameter.caFingerprint, provider: provider)
        caFingerprint = try parameters.string(Parameter.caFingerprint).map { text throws(CertificateProviderError) in
            try parameters.reading(Parameter.caFingerprint, provider: provider) {
                () throws(CertificateProviderError) in try CAFingerprint.parse(text)
            }
        }
        challengeSource = try parameters.secretSource(Parameter.challengeSource, provider: provider)
        caIdentifier = parameters.string(Parameter.caIdentifier)
        permitsTripleDES = try parameters.flag(Parameter.scepAllow3DES, provider: provider)
        for name in [Parameter.challengeSource, Parameter.caIdentifier, Parameter.scepAllow3DES]
        where enrolmentProtocol == .est && parameters.string(name) != nil {
            throw parameters.invalid(name, "belongs to protocol=scep", provider: provider)
        }
        guard !configuredTrust.hasPins || server.isSecure else {
            throw parameters.invalid(
                Parameter.pin, "is of no use with an http: server, which shows no certificate", provider: provider)
        }
        isPinOnly = try choice(Parameter.pinMode, PinMode.both, "pin-and-pki or pin-only") == .pinOnly
        guard !isPinOnly || configuredTrust.hasPins else {
            throw parameters.invalid(Parameter.pinMode, "is pin-only, which needs a 'pin'", provider: provider)
        }
        guard !isPinOnly || enrolmentProtocol == .scep || caFingerprint == nil else {
            throw parameters.invalid(
                Parameter.caFingerprint, "is not looked at with pin-mode=pin-only; remove it", provider: provider)
        }
        username = parameters.string(Parameter.username)
        guard username?.isUserName != false else {
            throw parameters.invalid(
                Parameter.username, "must not have a colon or a control character (RFC 7617)", provider: provider)
        }
        passwordSource = try parameters.secretSource(Parameter.passwordSource, provider: provider)
        bearerSource = try parameters.secretSource(Parameter.bearerSource, provider: provider)
        guard passwordSource == nil || username != nil else {
            throw parameters.invalid(Parameter.passwordSource, "needs a 'username'", provider: provider)
        }
        guard username == nil || server.isSecure else {
            throw parameters.invalid(
                Parameter.username, "is of no use with an http: server, which no password is sent to",
                provider: provider)
        }
        guard bearerSource == nil || server.isSecure else {
            throw parameters.invalid(
                Parameter.bearerSource, "is of no use with an http: server, which no token is sent to (RFC 6750)",
                provider: provider)
        }
        oauth = try OAuthSettings(parameters, for: server, provider: provider)
        guard oauth == nil || bearerSource == nil else {
            throw parameters.invalid(
                Parameter.bearerSource, "and '\(Parameter.tokenURL)' exclude each other", provider: provider)
        }
        guard username == nil || bearerSource == nil else {
            throw parameters.invalid(
                Parameter.bearerSource, "and '\(Parameter.username)' exclude each other", provider: provider)
        }
        clientCertificate = try ClientCertificate(parameters, for: server, provider: provider)
        // The CA's fingerprint says nothing of the connection, for which the host's list is left.
        if enrolmentProtocol == .scep, server.isSecure, !configuredTrust.hasAnchors, !configuredTrust.hasPins,
            let name = [
                Parameter.username, Parameter.bearerSource, Parameter.tokenURL, Parameter.clientCertificate,
            ].first(where: { parameters.string($0) != nil })
        {
            throw parameters.invalid(
                name,
                "goes to no server that is known by the host's list alone; set 'trust-anchors' or a 'pin' as well",
                provider: provider)
        }
        let subject = try parameters.requiredString(Parameter.subject, provider: provider)
        _ = try parameters.reading(Parameter.subject, provider: provider) { () throws(CertificateProviderError) in
            try CertificateRequest.Names(subject: subject)
        }
        let alternatives = (parameters.string(Parameter.subjectAlternativeNames) ?? "").split(separator: ",")
        names = try parameters.reading(Parameter.subjectAlternativeNames, provider: provider) {
            () throws(CertificateProviderError) in
            try CertificateRequest.Names(
                subject: subject, subjectAlternativeNames: alternatives.map { String($0).trimmed })
        }
        keyType = try parameters.string(Parameter.keyType).map { text throws(CertificateProviderError) in
            guard let type = KeyType(rawValue: text) else {
                throw parameters.invalid(
                    Parameter.keyType, "must be one of \(KeyType.allCases.map(\.rawValue).joined(separator: ", "))",
                    provider: provider)
            }
            return type
        }
        if enrolmentProtocol == .scep, let keyType, !keyType.isRSA {
            throw CertificateProviderError(
                .unsupportedAlgorithm,
                "SCEP needs an RSA key, which its answers are encrypted for (RFC 8894, section 2.2); set 'key-type' to rsa2048 "
                    + "or larger, or use EST.", provider: provider)
        }
        proxy = try ProxySettings(parameters, provider: provider)
        token = try TokenLocation(parameters, provider)
        asksForKey = try parameters.flag(Parameter.serverKeygen, provider: provider)
        guard !asksForKey || enrolmentProtocol == .est else {
            throw parameters.invalid(Parameter.serverKeygen, "belongs to protocol=est", provider: provider)
        }
        guard !asksForKey || token == nil else {
            throw parameters.invalid(
                Parameter.serverKeygen, "is for keys in the store: one in a token is made there", provider: provider)
        }
        guard let seconds = Int(parameters.string(Parameter.timeout) ?? String(RemoteMDMParameters.defaultTimeout)),
            (1...86_400).contains(seconds)
        else { throw parameters.invalid(Parameter.timeout, "must be a number of seconds to 86400", provider: provider) }
        timeout = .seconds(seconds)
        var name = "\(chosen)\0\(url)\0\(names.subjectText)\0\(names.alternativeNames.joined(separator: ","))"
        if let caIdentifier { name += "\0\(caIdentifier)" }
        entryName = String(Array(SHA256.hash(data: Array(name.utf8))).hexEncoded.prefix(32))
    }

    private enum PinMode: String { case both = "pin-and-pki", pinOnly = "pin-only" }

    /// Blocks on the files of trust anchors and pins.
    func trust() throws(CertificateProviderError) -> ServerTrust {
        // SCEP protects itself, and knows its authority by the fingerprint, the anchors or a person.
        guard server.isSecure else { return ServerTrust(trustAnchors: .system) }
        // Never silently: whom the host trusts for the web is not asked whom to trust with identities.
        guard enrolmentProtocol == .scep || configuredTrust.hasAnchors || configuredTrust.hasPins else {
            throw CertificateProviderError(
                .configurationInvalid,
                "Nothing says how to know \(server.authority): set 'trust-anchors' to a PEM file with its authority, or 'pin' "
                    + "(with pin-mode=pin-only where this host does not know its authority)."
            )
        }
        return try configuredTrust.serverTrust(isPinOnly: isPinOnly)
    }
}

import CertificateProviding
import CertificateTLS
import FoundationEssentials
import ProviderTransport

/// The validated parameters.
struct EnrolmentSettings: Sendable {
    enum EnrolmentKind: String, CaseIterable { case est, scep }
    enum PinMode: String, CaseIterable { case both = "pin-and-pki", pinOnly = "pin-only" }

    let enrolmentProtocol: EnrolmentKind
    let server: ServerURL
    /// The trust for the TLS connection.
    let configuredTrust: ConfiguredTrust
    let caFingerprint: [UInt8]?
    /// SCEP only.
    let caIdentifier: String?
    /// SCEP only.
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
    /// `nil` if the server may choose.
    let keyType: KeyType?
    /// Makes new keys.
    let keyStore: any KeyStore
    let proxy: ProxySettings
    /// How long the server may take for all requests of a run, and, in addition, how long a pending request is waited
    /// for.
    let timeout: Duration
    /// The name of the entry in the store. It depends on the server and the subject, which identify the identity.
    let entryName: String

    init(_ parameters: Parameters) throws(CertificateProviderError) {
        enrolmentProtocol = parameters[EnrolmentParameter.protocol]
        server = parameters[EnrolmentParameter.url]
        configuredTrust = ConfiguredTrust(
            anchors: EnrolmentParameter.trustAnchors, pins: EnrolmentParameter.pin, in: parameters)
        caFingerprint = parameters[EnrolmentParameter.caFingerprint]
        caIdentifier = parameters[EnrolmentParameter.caIdentifier]
        permitsTripleDES = parameters[EnrolmentParameter.scepAllow3DES]
        isPinOnly = parameters[EnrolmentParameter.pinMode] == .pinOnly
        username = parameters[EnrolmentParameter.username]
        passwordSource = parameters[EnrolmentParameter.passwordSource]
        bearerSource = parameters[EnrolmentParameter.bearerSource]
        challengeSource = parameters[EnrolmentParameter.challengeSource]
        oauth = try OAuthSettings(parameters, for: server)
        clientCertificate = try ClientCertificate(parameters)
        names = try Self.names(parameters)
        keyType = parameters[EnrolmentParameter.keyType]
        proxy = try ProxySettings(parameters)
        keyStore = parameters[EnrolmentParameter.key]
        asksForKey = parameters[EnrolmentParameter.serverKeygen]
        timeout = parameters[EnrolmentParameter.timeout]
        entryName = StoredIdentity.name(
            of: [
                enrolmentProtocol.rawValue, parameters.text(EnrolmentParameter.url) ?? "", names.subjectText,
                names.alternativeNames.map(\.description).joined(separator: ","),
            ] + (caIdentifier.map { [$0] } ?? []))
        try checkServer(parameters)
        try checkKeys(parameters)
    }

    /// The parameter of a secret that a person enters; `nil` if all have other sources.
    var promptedSource: String? {
        if proxy.asksForPassword { return ServerParameter.proxyPasswordSource.name }
        if oauth?.secretSource == .prompt { return EnrolmentParameter.clientSecretSource.name }
        if username != nil, passwordSource ?? .prompt == .prompt { return EnrolmentParameter.passwordSource.name }
        if bearerSource == .prompt { return EnrolmentParameter.bearerSource.name }
        return challengeSource == .prompt ? EnrolmentParameter.challengeSource.name : nil
    }

    private static func names(
        _ parameters: Parameters
    ) throws(CertificateProviderError) -> CertificateRequest.Names {
        try parameters.reading(EnrolmentParameter.subject) { () throws(CertificateProviderError) in
            try CertificateRequest.Names(
                subject: parameters[EnrolmentParameter.subject],
                subjectAlternativeNames: parameters[EnrolmentParameter.subjectAlternativeNames])
        }
    }

    /// Checks what is sent to the server, and how the server is authenticated.
    private func checkServer(_ parameters: Parameters) throws(CertificateProviderError) {
        guard enrolmentProtocol != .est || (server.isSecure && server.query == nil) else {
            throw parameters.invalid(
                EnrolmentParameter.url, "must be https://HOST[:PORT][/LABEL] for EST (RFC 7030)")
        }
        if !server.isSecure {
            if configuredTrust.hasPins {
                throw parameters.invalid(
                    EnrolmentParameter.pin, "cannot be used with an http: server, which has no certificate")
            }
            if username != nil {
                throw parameters.invalid(
                    EnrolmentParameter.username,
                    "cannot be used with an http: server: passwords are sent only over TLS")
            }
            if bearerSource != nil {
                throw parameters.invalid(
                    EnrolmentParameter.bearerSource,
                    "cannot be used with an http: server: tokens are sent only over TLS (RFC 6750)")
            }
            if clientCertificate != nil {
                throw parameters.invalid(
                    EnrolmentParameter.clientCertificate,
                    "cannot be used with an http: server: client certificates are part of TLS")
            }
        }
        guard !isPinOnly || configuredTrust.hasPins else {
            throw parameters.invalid(EnrolmentParameter.pinMode, "is pin-only, which needs a 'pin'")
        }
        guard !isPinOnly || enrolmentProtocol == .scep || caFingerprint == nil else {
            throw parameters.invalid(
                EnrolmentParameter.caFingerprint, "is not used with pin-mode=pin-only; remove it")
        }
        // The CA fingerprint does not authenticate the TLS connection; only the system trust store would.
        if enrolmentProtocol == .scep, server.isSecure, !configuredTrust.isConfigured {
            let reason =
                "is not sent to a server that only the system trust store authenticates; set 'trust-anchors' or 'pin' "
                + "as well"
            if username != nil { throw parameters.invalid(EnrolmentParameter.username, reason) }
            if bearerSource != nil { throw parameters.invalid(EnrolmentParameter.bearerSource, reason) }
            if oauth != nil { throw parameters.invalid(EnrolmentParameter.tokenURL, reason) }
            if clientCertificate != nil { throw parameters.invalid(EnrolmentParameter.clientCertificate, reason) }
        }
    }

    private func checkKeys(_ parameters: Parameters) throws(CertificateProviderError) {
        if enrolmentProtocol == .scep, let keyType, !keyType.isRSA {
            throw CertificateProviderError(
                .unsupportedAlgorithm,
                "SCEP needs an RSA key, since the answers are encrypted for it (RFC 8894, section 2.2); set "
                    + "'key-type' to rsa2048 or larger, or use EST.")
        }
        guard !asksForKey || keyStore.properties.importsKeys else {
            throw parameters.invalid(
                EnrolmentParameter.serverKeygen,
                "cannot be used with this 'key': its key store takes in no key that was made elsewhere")
        }
    }

    /// Returns the trust for the TLS connection. Blocks while the files of trust anchors and pins are read.
    func trust() throws(CertificateProviderError) -> ServerTrust {
        // SCEP protects itself, and knows its authority by the fingerprint, the anchors or a person.
        guard server.isSecure else { return ServerTrust(trustAnchors: .system) }
        // The system trust store is meant for the web, and is never used implicitly for an enrolment server.
        guard enrolmentProtocol == .scep || configuredTrust.isConfigured else {
            throw CertificateProviderError(
                .configurationInvalid,
                "No trust anchor is configured for \(server.authority). Set 'trust-anchors' to a PEM file with its "
                    + "CA, or 'pin' (with pin-mode=pin-only if its CA is not in the system trust store).")
        }
        return try configuredTrust.serverTrust(isPinOnly: isPinOnly)
    }
}

import CertificateProviding
import CertificateTLS
import Enrolment
import ProviderTransport

/// The validated parameters that EST and SCEP have in common.
struct EnrolmentSettings: Sendable {
    enum EnrolmentKind: String, CaseIterable { case est, scep }

    let server: ServerURL
    /// The trust for the TLS connection.
    let configuredTrust: ConfiguredTrust
    let caFingerprint: [UInt8]?
    let isPinOnly: Bool
    let username: String?
    let passwordSource: SecretSource?
    let bearerSource: SecretSource?
    let oauth: OAuthSettings?
    let clientCertificate: ClientCertificate?
    let challengeSource: SecretSource?
    let proxy: ProxySettings
    /// The identity to enrol. The server may take its timeout for all requests of a run, and, in addition, as long for a decision.
    let plan: EnrolmentPlan
    var timeout: Duration { plan.timeout }

    /// - Throws: `configurationInvalid`.
    init(_ parameters: Parameters) throws(ProviderError) {
        server = parameters[EnrolmentParameter.url]
        configuredTrust = ConfiguredTrust(
            anchors: EnrolmentParameter.trustAnchors, pins: EnrolmentParameter.pin, in: parameters)
        caFingerprint = parameters[EnrolmentParameter.caFingerprint]
        isPinOnly = parameters[EnrolmentParameter.pinMode]
        username = parameters[EnrolmentParameter.username]
        passwordSource = parameters[EnrolmentParameter.passwordSource]
        bearerSource = parameters[EnrolmentParameter.bearerSource]
        challengeSource = parameters[EnrolmentParameter.challengeSource]
        oauth = try OAuthSettings(parameters, for: server)
        clientCertificate = try ClientCertificate(parameters)
        proxy = try ProxySettings(parameters)
        let names = try Self.names(parameters)
        var plan = EnrolmentPlan(
            names: names, usage: parameters[IdentityUsage.parameter], keyStore: parameters[EnrolmentParameter.key],
            keyType: parameters[EnrolmentParameter.keyType],
            timeout: parameters[EnrolmentParameter.timeout],
            storageName: StoredIdentity.name(
                distinguishedBy: [
                    parameters[EnrolmentParameter.protocol].rawValue, parameters.text(EnrolmentParameter.url) ?? "",
                    names.subjectText, names.alternativeNames.map(\.description).joined(separator: ","),
                ] + (parameters[EnrolmentParameter.caIdentifier].map { [$0] } ?? [])
                    + parameters[IdentityUsage.parameter].distinguishingProperties))
        switch parameters[EnrolmentParameter.names] {
        case .requested: plan.subjectRule = .required
        case .server: plan.subjectRule = .server
        case nil: break
        }
        self.plan = plan
        try checkServer(parameters)
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
    ) throws(ProviderError) -> CertificateRequest.Names {
        try parameters.reading(EnrolmentParameter.subject) { () throws(ProviderError) in
            try CertificateRequest.Names(
                subject: parameters[EnrolmentParameter.subject],
                subjectAlternativeNames: parameters[EnrolmentParameter.subjectAlternativeNames])
        }
    }

    /// Checks that secrets are sent over TLS only, and that pins have a connection to check.
    private func checkServer(_ parameters: Parameters) throws(ProviderError) {
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
    }
}

extension ServerRun {
    /// Returns the configured trust for the TLS connection; the system trust store's without one.
    func connectionTrust() async throws(ProviderError) -> ServerTrust {
        guard settings.server.isSecure else { return ServerTrust(trustAnchors: .system) }
        return try await environment.executor.run { [settings] () throws(ProviderError) in
            try settings.configuredTrust.serverTrust(isPinOnly: settings.isPinOnly)
        }
    }
}

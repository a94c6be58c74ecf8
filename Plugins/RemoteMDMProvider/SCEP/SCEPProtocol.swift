import CertificateProviding
import Enrolment
import ProviderTransport

/// SCEP (RFC 8894), which authenticates the CA by its certificate, and protects its messages itself.
struct SCEPProtocol: MDMProtocol {
    let settings: EnrolmentSettings
    let environment: ProviderEnvironment
    private let authorityIdentifier: String?
    private let permitsTripleDES: Bool

    /// Answers are encrypted for the key (section 2.2).
    let keyUse: KeyUse = [.signing, .pkcs1Decryption]
    let defaultKeyType = KeyType.rsa2048
    /// Few tokens make keys that decrypt: the server must not hear of a request that cannot be made.
    let needsKeyFirst = true
    let keyAdvice: String? = "SCEP needs a key that can decrypt; leave 'key' out, or use EST."

    /// A pin authenticates only the connection, and not the CA.
    static let authorityRules = AuthorityTrust.Rules(
        pinsCoverAuthority: false,
        remedy:
            "'ca-fingerprint', or 'trust-anchors' to a PEM file with its CA; a pin authenticates only the connection")

    /// - Throws: `configurationInvalid` and `unsupportedAlgorithm` for parameters that SCEP cannot use.
    init(
        _ settings: EnrolmentSettings, _ parameters: Parameters, _ environment: ProviderEnvironment
    ) throws(ProviderError) {
        (self.settings, self.environment) = (settings, environment)
        authorityIdentifier = parameters[EnrolmentParameter.caIdentifier]
        permitsTripleDES = parameters[EnrolmentParameter.scepAllow3DES]
        // The CA fingerprint does not authenticate the TLS connection; only the system trust store would.
        if settings.server.isSecure, !settings.configuredTrust.isConfigured {
            let reason =
                "is not sent to a server that only the system trust store authenticates; set 'trust-anchors' or 'pin' "
                + "as well"
            if settings.username != nil { throw parameters.invalid(EnrolmentParameter.username, reason) }
            if settings.bearerSource != nil { throw parameters.invalid(EnrolmentParameter.bearerSource, reason) }
            if settings.oauth != nil { throw parameters.invalid(EnrolmentParameter.tokenURL, reason) }
            if settings.clientCertificate != nil {
                throw parameters.invalid(EnrolmentParameter.clientCertificate, reason)
            }
        }
        if let keyType = settings.plan.keyType, !keyType.isRSA {
            throw ProviderError(
                .unsupportedAlgorithm,
                "SCEP needs an RSA key, since the answers are encrypted for it (RFC 8894, section 2.2); set "
                    + "'key-type' to rsa2048 or larger, or use EST.")
        }
    }

    func session(_ interaction: any UserInteraction) async throws(ProviderError) -> any EnrolmentSession {
        let run = try await run(interaction)
        var confirm: SCEPConfiguration.Confirmation?
        if run.trust.isToBeConfirmed {
            try run.trust.requireUser()
            confirm = { authorities async throws(ProviderError) in try await run.trust.confirm(authorities) }
        }
        return SCEPSession(
            run: run,
            configuration: try SCEPConfiguration(
                target: settings.server.target, authorityIdentifier: authorityIdentifier,
                fingerprint: settings.caFingerprint, trustAnchors: run.trust.anchors, known: run.trust.known,
                confirm: confirm, permitsTripleDES: permitsTripleDES))
    }
}

/// One run with a SCEP server.
struct SCEPSession: MDMSession {
    let run: ServerRun
    let configuration: SCEPConfiguration
    private let client = CurrentClient<SCEPClient>()

    init(run: ServerRun, configuration: SCEPConfiguration) { (self.run, self.configuration) = (run, configuration) }

    func connect(
        presenting known: Identity?, isRenewal: Bool
    ) async throws(ProviderError) -> EnrolmentTerms {
        run.interaction.report("Asking \(run.settings.server.authority) for its authorities")
        let trust = try await run.connectionTrust()
        let session = try run.session(
            presenting: known, trust, try await run.credentials(trust, isRenewal: isRenewal))
        let client = SCEPClient(
            configuration,
            challenge: { request async throws(ProviderError) in
                try await run.challenge(isRenewal: request.current != nil)
            }, now: run.environment.now, logger: run.environment.logger,
            transport: { request async throws(ProviderError) in try await session.response(to: request) },
            hasRefusedCredentials: { await session.hasRefusedCredentials })
        let authorities = try await client.authorities()
        if let lasting = try await client.lastingAuthorities(among: authorities),
            run.trust.hasRecord || !isConfigured(lasting)
        {
            try await run.trust.remember(lasting)
        }
        self.client.set(client)
        return EnrolmentTerms(authorities: authorities, intermediates: run.trust.anchors)
    }

    /// Whether the configuration alone makes all of `authorities` trust anchors.
    private func isConfigured(_ authorities: [X509Certificate]) -> Bool {
        let anchors = run.trust.anchors
        return authorities.allSatisfy {
            anchors.isEmpty ? $0.sha256Fingerprint == configuration.fingerprint : anchors.contains($0)
        }
    }

    func send(_ request: EnrolmentRequest) async throws(ProviderError) -> EnrolmentAnswer {
        try await client.get().enrol(request)
    }

    func isFinalRefusal(_ error: ProviderError) -> Bool {
        error.reason == .signedRefusal || error.isRefusalByHTTPStatus
    }
}

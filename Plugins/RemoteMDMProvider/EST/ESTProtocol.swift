import CertificateProviding
import CertificateTLS
import Enrolment
import ProviderTransport

/// EST (RFC 7030), which authenticates the server by its TLS connection.
struct ESTProtocol: MDMProtocol {
    let settings: EnrolmentSettings
    let environment: ProviderEnvironment
    /// Whether the server makes the key.
    private let asksForKey: Bool

    /// The trust in the connection covers its CA.
    static let authorityRules = AuthorityTrust.Rules(
        pinsCoverAuthority: true,
        remedy: "'trust-anchors' to a PEM file with its CA, 'ca-fingerprint', or 'pin' (with pin-mode=pin-only if its "
            + "CA is not in the system trust store)")

    /// - Throws: `configurationInvalid` for parameters that EST cannot use.
    init(
        _ settings: EnrolmentSettings, _ parameters: Parameters, _ environment: ProviderEnvironment
    ) throws(ProviderError) {
        (self.settings, self.environment) = (settings, environment)
        asksForKey = parameters[EnrolmentParameter.serverKeygen]
        guard settings.server.isSecure, settings.server.query == nil else {
            throw parameters.invalid(
                EnrolmentParameter.url, "must be https://HOST[:PORT][/LABEL] for EST (RFC 7030)")
        }
        guard !settings.isPinOnly || settings.caFingerprint == nil else {
            throw parameters.invalid(
                EnrolmentParameter.caFingerprint, "is not used with pin-mode=pin-only; remove it")
        }
        guard !asksForKey || settings.plan.keyStore.properties.importsKeys else {
            throw parameters.invalid(
                EnrolmentParameter.serverKeygen,
                "cannot be used with this 'key': its key store takes in no key that was made elsewhere")
        }
    }

    func session(_ interaction: any UserInteraction) async throws(ProviderError) -> any EnrolmentSession {
        ESTSession(try await run(interaction), asksForKey: asksForKey)
    }
}

/// One run with an EST server.
struct ESTSession: MDMSession {
    let run: ServerRun
    private let asksForKey: Bool
    private let trust: ESTTrust
    private let client = CurrentClient<ESTClient>()

    init(_ run: ServerRun, asksForKey: Bool) {
        (self.run, self.asksForKey) = (run, asksForKey)
        trust = ESTTrust(run)
    }

    func connect(
        presenting known: Identity?, isRenewal: Bool
    ) async throws(ProviderError) -> EnrolmentTerms {
        run.interaction.report("Asking \(run.settings.server.authority) for its authorities")
        let first = try await trust.serverTrust(presenting: known)
        let credentials = try await run.credentials(first, isRenewal: isRenewal)
        var client = try makeClient(presenting: known, first, credentials)
        do throws(ProviderError) { try await client.session.connect() } catch {
            guard error.code == .serverNotTrusted, let next = try await trust.trustAfterRollover() else { throw error }
            // The token endpoint may be on this server, and is then trusted like it.
            let renewed =
                run.settings.oauth == nil ? credentials : try await run.credentials(next, isRenewal: isRenewal)
            client = try makeClient(presenting: known, next, renewed)
            try await client.session.connect()
        }
        let authorities = try await client.authorities()
        try await trust.remember(client.lastingAuthorities(among: authorities), of: authorities)
        let wishes = try await client.attributes()
        self.client.set(client)
        return EnrolmentTerms(
            authorities: authorities, intermediates: run.trust.anchors,
            keyType: run.settings.plan.keyType == nil ? try wishes.keyToMake() : nil)
    }

    private func makeClient(
        presenting known: Identity?, _ trust: ServerTrust, _ credentials: ServerCredentials
    ) throws(ProviderError) -> ESTClient {
        ESTClient(
            run.settings.server, session: try run.session(presenting: known, trust, credentials),
            now: run.environment.now, asksForKey: asksForKey)
    }

    func certificateRequest(
        _ names: CertificateRequest.Names, _ usage: IdentityUsage, _ key: any IdentityKey
    ) async throws(ProviderError) -> CertificateRequest {
        try await RequestContent(names: names, usage: usage, wishes: try await client.get().attributes())
            .signed(with: key)
    }

    func send(_ request: EnrolmentRequest) async throws(ProviderError) -> EnrolmentAnswer {
        try await client.get().enrol(request)
    }
}

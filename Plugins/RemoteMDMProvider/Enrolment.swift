import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Logging

/// One run of an enrolment: from the key to the sealed identity, or from where the last run has ended.
///
/// The key rests in the store before the server hears of it, so that a process that is killed at any point goes on with
/// the same key. The identity that there is stays until the new one has signed a probe.
struct Enrolment {
    private let settings: Settings
    private let environment: ProviderEnvironment
    private let interaction: any UserInteraction
    private let storage: any IdentityStorage

    init(_ settings: Settings, _ environment: ProviderEnvironment, _ interaction: any UserInteraction) {
        self.settings = settings
        self.environment = environment
        self.interaction = interaction
        self.storage = environment.storage
    }

    func run() async throws(CertificateProviderError) -> Identity {
        guard
            let claim = try await blocking({ () throws(CertificateProviderError) in
                try storage.claimRecord(named: settings.recordName)
            })
        else {
            throw CertificateProviderError(
                .operationNotAllowed, "Another process is enrolling with \(settings.server.authority); wait for it.")
        }
        defer { claim.isInterrupted = false }
        let now = environment.now()
        let current = try await blocking { () throws(CertificateProviderError) in
            try storage.entry(named: settings.entryName).map(RemoteMDMProvider.identity)
        }
        let renewed = current.flatMap { $0.certificate.status(at: now) == .valid ? $0 : nil }
        let client = try await makeClient(presenting: renewed)
        interaction.report("Asking \(settings.server.authority) for its authorities")
        let authorities = try await client.authorities()
        var pending = try await pendingEnrolment(client, after: current)
        let key = try SoftwareKey(pkcs8: pending.privateKey, location: .store)
        let end = ContinuousClock.now + settings.timeout
        while true {
            interaction.report(
                renewed == nil
                    ? "Asking for a certificate for \(settings.names.subjectText)"
                    : "Renewing \(settings.names.subjectText)")
            let request = EnrolmentRequest(
                names: settings.names, csr: pending.csr, key: key, current: renewed, isPending: pending.isUndecided)
            switch try await client.enrol(request) {
            case .issued(let certificates):
                let issued = try await IssuedCertificate(
                    certificates, for: request, from: authorities, at: environment.now())
                return try await store(issued, pending)
            case .pending(let delay):
                pending.isUndecided = true
                try await keep(pending)
                try await wait(delay ?? .seconds(60), until: end)
            }
        }
    }

    /// The key that is to be certified: that of an enrolment that did not come to its end, or a new one.
    private func pendingEnrolment(
        _ client: any EnrolmentProtocol, after current: Identity?
    ) async throws(CertificateProviderError) -> PendingEnrolment {
        let kept = try await blocking { () throws(CertificateProviderError) in
            try storage.record(named: settings.recordName).flatMap { record throws(CertificateProviderError) in
                try PendingEnrolment(record)
            }
        }
        // Where it has its certificate already, the last run ended before it could forget it.
        let known = (current?.key as? any ExportableIdentityKey).flatMap { try? $0.pkcs8Representation() }
        if let kept, kept.privateKey != known { return kept }
        let type = if let type = settings.keyType { type } else { try await client.preferredKeyType() ?? .p256 }
        let key = try await blocking { () throws(CertificateProviderError) in
            try SoftwareKey.generate(type, location: .store)
        }
        let csr = try await CertificateRequest(settings.names, key: key)
        let new = PendingEnrolment(privateKey: try key.pkcs8Representation(), csr: csr.derRepresentation)
        try await keep(new)
        return new
    }

    private func keep(_ pending: PendingEnrolment) async throws(CertificateProviderError) {
        try await blocking { () throws(CertificateProviderError) in
            try storage.updateRecord(named: settings.recordName) { _ in pending.encoded }
        }
    }

    private func wait(_ delay: Duration, until end: ContinuousClock.Instant) async throws(CertificateProviderError) {
        guard .now + delay < end else {
            let date = environment.now() + Double(delay.components.seconds)
            throw CertificateProviderError(
                .pending,
                "\(settings.server.authority) has not decided on the request yet; ask again after \(date). The key is kept.",
                retryAfter: delay)
        }
        interaction.report("Waiting \(delay.components.seconds) s for \(settings.server.authority) to decide")
        do { try await Task.sleep(for: max(delay, .seconds(1))) } catch {
            throw CertificateProviderError(.userCancelled, "The enrolment was cancelled. Its key is kept.")
        }
    }

    private func store(
        _ issued: IssuedCertificate, _ pending: PendingEnrolment
    ) async throws(CertificateProviderError) -> Identity {
        let entry = StoredIdentity(
            certificateChain: issued.chain, privateKey: pending.privateKey,
            attributes: ["server": settings.server.origin + settings.server.path])
        let identity = try RemoteMDMProvider.identity(entry)
        try await identity.verifyPossession()
        try await blocking { () throws(CertificateProviderError) in
            try storage.setEntry(entry, named: settings.entryName)
            try storage.updateRecord(named: settings.recordName) { _ in SecretBytes(copying: []) }
        }
        environment.logger.debug("identity enrolled", metadata: ["subject": "\(identity.certificate.subject)"])
        return identity
    }

    private func makeClient(presenting current: Identity?) async throws(CertificateProviderError)
        -> any EnrolmentProtocol
    {
        let trust = try await blocking { () throws(CertificateProviderError) in try settings.trust() }
        let security = ServerConnection.Security(
            trust: trust,
            credentials: try (settings.server.isSecure ? current : nil).map {
                identity throws(CertificateProviderError) in
                try TLSCredentials(identity)
            }, now: environment.now)
        let session = ServerSession(
            settings.server, security, try await credentials(), timeout: settings.timeout)
        switch settings.enrolmentProtocol {
        case .est: return ESTClient(settings.server, session: session, now: environment.now)
        case .scep: return try await makeSCEPClient(session)
        }
    }

    private func makeSCEPClient(_ session: ServerSession) async throws(CertificateProviderError) -> SCEPClient {
        let configuration = try await blocking { () throws(CertificateProviderError) in
            try SCEPConfiguration(
                target: settings.server.target, fingerprint: settings.caFingerprint,
                trustAnchors: try settings.trustAnchors.map { path throws(CertificateProviderError) in
                    try CertificateFile.read(path)
                } ?? [])
        }
        return SCEPClient(
            configuration,
            challenge: { [settings, environment, interaction] _ async throws(CertificateProviderError) in
                guard let source = settings.challengeSource else { return nil }
                return try await environment.secret(
                    from: source, prompt: "Challenge for \(settings.server.authority)", interaction: interaction)
            }, now: environment.now, logger: environment.logger
        ) { request async throws(CertificateProviderError) in try await session.response(to: request) }
    }

    private func credentials() async throws(CertificateProviderError) -> ServerCredentials {
        if let source = settings.bearerSource {
            return .bearer(
                try await environment.secret(
                    from: source, prompt: "Token for \(settings.server.authority)", interaction: interaction))
        }
        guard let user = settings.username else { return .none }
        let password = try await environment.secret(
            from: settings.passwordSource ?? .prompt,
            prompt: "Password of \(user) at \(settings.server.authority)", interaction: interaction)
        return .password(user: user, password)
    }

    private func blocking<T: Sendable>(
        _ work: @escaping @Sendable () throws(CertificateProviderError) -> T
    ) async throws(CertificateProviderError) -> T {
        try await environment.executor.run(work)
    }
}

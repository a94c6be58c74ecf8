import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Logging
import ProviderTransport

/// One run of an enrolment, from the key to the sealed identity. It resumes an interrupted run.
///
/// The key is in the store before the server gets a request, so that a process that is killed at any point resumes with
/// the same key. The existing identity stays until the new one has signed a probe.
struct Enrolment {
    let settings: EnrolmentSettings
    let environment: ProviderEnvironment
    let interaction: any UserInteraction
    let storage: any IdentityStorage
    let keys: EnrolmentKeys
    let transport: Transport
    let secretsInHand = SecretsInHand()

    init(
        _ settings: EnrolmentSettings, _ keys: EnrolmentKeys, _ environment: ProviderEnvironment,
        _ interaction: any UserInteraction, _ transport: Transport
    ) {
        self.settings = settings
        self.keys = keys
        self.transport = transport
        self.environment = environment
        self.interaction = interaction
        self.storage = environment.storage
    }

    func run() async throws(CertificateProviderError) -> Identity {
        let identity = try await environment.withLease(of: settings.recordName) {
            () async throws(CertificateProviderError) in
            do throws(CertificateProviderError) {
                return try await runAlone()
            } catch {
                guard error.code == .rejected, let withheld = secretsInHand.withheld else { throw error }
                var refusal = error
                refusal.message += " \(withheld.message)"
                throw refusal
            }
        }
        guard let identity else { throw settings.busy }
        return identity
    }

    private func runAlone() async throws(CertificateProviderError) -> Identity {
        let current = try await currentIdentity()
        let renewed = current?.identity.flatMap { $0.certificate.status(at: environment.now()) == .valid ? $0 : nil }
        // One for the whole run: it has the time that the server may take.
        let trust = try await trust()
        guard let renewed else {
            return try await enrol(after: current, presenting: clientIdentity(), trust)
        }
        do throws(CertificateProviderError) {
            return try await enrol(after: current, renewing: renewed, presenting: renewed, trust)
        } catch {
            guard hasCredential, error.isEndAfterCertificate || error.isRefusalAfterCertificate else { throw error }
            return try await enrolAnew(after: error, of: renewed.certificate, current, trust)
        }
    }

    /// Enrols as if there were no identity yet, once, after the server has refused the current certificate.
    ///
    /// - Throws: `refusal` if the credentials for that are missing.
    private func enrolAnew(
        after refusal: CertificateProviderError, of refused: X509Certificate,
        _ current: (key: OwnedKey, identity: Identity?)?, _ trust: AuthorityTrust
    ) async throws(CertificateProviderError) -> Identity {
        environment.logger.warning(
            "the server has refused the request after the current certificate was shown; enrolling without it",
            metadata: ["reason": "\(refusal.message)"])
        func impossible(_ reason: CertificateProviderError) -> CertificateProviderError {
            var refusal = refusal.naming(refused, isOwn: true)
            refusal.message += " An enrolment without it is not possible either: \(reason.message)"
            return refusal
        }
        let device: Identity?
        do throws(CertificateProviderError) { device = try await clientIdentity(isOptional: hasSecret) } catch {
            throw error.code == .userCancelled ? error : impossible(error)
        }
        do throws(CertificateProviderError) {
            // It is otherwise read only when the request is made.
            _ = try await challenge(isRenewal: false)
            return try await enrol(after: current, presenting: device, trust)
        } catch {
            throw error.isMissingSecret ? impossible(error) : error
        }
    }

    /// Makes or resumes one enrolment.
    ///
    /// - Parameters:
    ///   - current: The stored identity, which is replaced.
    ///   - renewed: The stored identity, to be renewed; `nil` for a first enrolment.
    ///   - known: The identity to present to the server.
    private func enrol(
        after current: (key: OwnedKey, identity: Identity?)?, renewing renewed: Identity? = nil,
        presenting known: Identity?, _ trust: AuthorityTrust
    ) async throws(CertificateProviderError) -> Identity {
        var content = RequestContent(names: names(renewing: renewed), wishes: SCEPClient.attributes)
        // Whether a token makes keys for SCEP has to be known before the server hears anything.
        let early =
            settings.enrolmentProtocol == .scep
            ? try await pendingEnrolment(after: current?.key, content) : nil
        var stage = Stage.before(early?.new)
        do throws(CertificateProviderError) {
            let (client, authorities) = try await connect(presenting: known, isRenewal: renewed != nil, trust)
            content.wishes = try await client.attributes()
            let begun =
                if let early { early } else { try await pendingEnrolment(after: current?.key, content) }
            var (pending, key) = (begun.pending, begun.key)
            let end = transport.retryPolicy.now() + settings.timeout
            var polls = 0
            while true {
                stage = .asking(pending, isNew: begun.new != nil)
                interaction.report(
                    renewed == nil
                        ? "Asking for a certificate for \(settings.names.subjectText)"
                        : "Renewing \(settings.names.subjectText)")
                var request = EnrolmentRequest(
                    names: settings.names, content: content, csr: pending.csr, key: key, current: renewed,
                    isPending: pending.isUndecided)
                let certificates: [X509Certificate]
                switch try await client.enrol(request) {
                case .issued(let issued): certificates = issued
                case .generated(let made):
                    certificates = made.certificates
                    let generated = try SoftwareKey(pkcs8: made.privateKey, location: .store)
                    if let type = settings.keyType, !type.fits(generated.publicKey) {
                        throw CertificateProviderError(
                            .protocolError,
                            "The server has made a key of type \(generated.publicKey.displayName), but 'key-type' is "
                                + "\(type); configure the server to make such keys, or change 'key-type'.")
                    }
                    (pending, key) = try await taken(made.privateKey, insteadOf: pending)
                    request = EnrolmentRequest(
                        names: settings.names, content: content, csr: request.csr, key: key, current: renewed,
                        isPending: false)
                case .pending(let delay):
                    pending.isUndecided = true
                    try await keep(pending)
                    polls += 1
                    try await wait(transport.retryPolicy.delay(beforePoll: polls, told: delay), told: delay, until: end)
                    continue
                }
                stage = .answered(pending)
                let issued = try await IssuedCertificate(
                    certificates, for: request, from: authorities, through: trust.anchors, at: environment.now())
                try await requireTLS(issued, key)
                stage = .done
                let identity = try await store(
                    issued, TrustBundle(authorities), key, pending, replacing: current)
                await noteOutcome(nil)
                return identity
            }
        } catch {
            // Before a token takes seconds to destroy the key: a process that is killed in that time must not lose it.
            await noteOutcome(error)
            if let pending = stage.abandoned(after: error) { await abandon(pending) }
            throw known.map { error.naming($0.certificate, isOwn: renewed != nil) } ?? error
        }
    }

    /// Returns the stored identity. If its key is no longer in its key store, the identity is `nil`: it can be replaced,
    /// but not renewed.
    private func currentIdentity() async throws(CertificateProviderError) -> (key: OwnedKey, identity: Identity?)? {
        let entry = try await blocking { () throws(CertificateProviderError) in
            try storage.entry(named: settings.entryName)
        }
        guard let entry, let kept = OwnedKey(entry) else { return nil }
        do throws(CertificateProviderError) {
            if let key = try await keys.find(kept, interaction) {
                return (kept, try RemoteMDMProvider.identity(entry, key))
            }
            environment.logger.warning("the key of the current identity is no longer in its key store")
        } catch {
            // A key store that is no longer configured may be lost, and is not waited for.
            if let key = kept.reference, keys.isConfigured(key) { throw error }
            environment.logger.warning(
                "the token with the current identity's key cannot be used", metadata: ["reason": "\(error)"])
        }
        return (kept, nil)
    }

    /// Returns the identity of `client-certificate`, which authenticates the first enrolment; `nil` if none is
    /// configured.
    ///
    /// - Parameter isOptional: Whether a failure is only logged, and the result is then `nil`: the certificate may be gone
    ///   by now, and another credential is enough.
    private func clientIdentity(isOptional: Bool = false) async throws(CertificateProviderError) -> Identity? {
        guard let certificate = settings.clientCertificate else { return nil }
        do throws(CertificateProviderError) {
            return try await certificate.identity(environment, interaction)
        } catch {
            guard isOptional, error.code != .userCancelled else { throw error }
            environment.logger.warning(
                "enrolling without 'client-certificate'", metadata: ["reason": "\(error.message)"])
            return nil
        }
    }

    /// Returns the names for the request: those of the certificate to be renewed, as servers demand (RFC 7030, section
    /// 4.2.2), if it has the configured names; else the configured names.
    private func names(renewing current: Identity?) -> CertificateRequest.Names {
        guard let leaf = current?.certificate, IssuedCertificate.has(leaf, settings.names),
            let names = try? CertificateRequest.Names(of: leaf)
        else { return settings.names }
        return names
    }

    /// Waits before the server is asked again about a pending request.
    ///
    /// - Parameter told: The delay that the server has asked for, if any.
    /// - Throws: `pending` if the delay exceeds the timeout; `userCancelled`.
    private func wait(
        _ delay: Duration, told: Duration?, until end: ContinuousClock.Instant
    ) async throws(CertificateProviderError) {
        guard transport.retryPolicy.now() + delay < end else {
            let date = told.map { "after \((environment.now() + Double($0.components.seconds)).formatted(.iso8601))" }
            throw CertificateProviderError(
                .pending,
                "\(settings.server.authority) has not decided on the request yet; ask again \(date ?? "later"). The "
                    + "next attempt uses the same key.",
                retryAfter: told)
        }
        let next = transport.retryPolicy.now() + max(delay, .seconds(1))
        do {
            while case let left = transport.retryPolicy.now().duration(to: next), left > .zero {
                interaction.report("Waiting for \(settings.server.authority) to decide", remaining: left)
                try await transport.retryPolicy.sleep(min(left, .seconds(1)))
            }
            interaction.report("", remaining: .zero)
        } catch {
            interaction.report("", remaining: .zero)
            throw CertificateProviderError(
                .userCancelled, "The enrolment was cancelled. The next attempt uses the same key.")
        }
    }

    /// Checks that TLS takes what the server has issued, before anything is replaced by it. Does not use the key.
    private func requireTLS(
        _ issued: IssuedCertificate, _ key: any IdentityKey
    ) async throws(CertificateProviderError) {
        let identity = try Identity(
            certificateChain: issued.chain, key: key, provenance: .init(provider: RemoteMDMProvider.id))
        try await blocking { () throws(CertificateProviderError) in _ = try TLSCredentials(identity) }
    }

    private func store(
        _ issued: IssuedCertificate, _ trust: TrustBundle?, _ key: any IdentityKey, _ pending: PendingEnrolment,
        replacing old: (key: OwnedKey, identity: Identity?)?
    ) async throws(CertificateProviderError) -> Identity {
        var pending = pending
        let source = settings.server.origin + settings.server.path
        let identity = try await keys.storeChain(
            pending.key, key, with: issued.chain, trust: trust, source: source, interaction)
        if let old = old?.key, old.reference != nil, !old.isSame(as: pending.key) {
            pending.replaced = old
            try await keep(pending)
        }
        let entry = pending.key.entry(with: issued.chain, trust: trust, attributes: ["server": source])
        try await blocking { () throws(CertificateProviderError) in
            try storage.setEntry(entry, named: settings.entryName)
        }
        environment.logger.debug("identity enrolled", metadata: ["subject": "\(identity.certificate.subject)"])
        do throws(CertificateProviderError) {
            try await keys.removeOthers(than: identity, pending.key, interaction)
            // The replaced key is used for connections until the new identity is in use, unless those have it in memory.
            if pending.replaced == nil || old?.identity?.key.exporter != nil { try await end(pending) }
        } catch {
            // The new identity is there; the record says what is left to do.
            environment.logger.warning(
                "the replaced key and certificates could not be removed; the next enrolment tries again",
                metadata: ["reason": "\(error)"])
        }
        return identity
    }

    func blocking<T: Sendable>(
        _ work: @escaping @Sendable () throws(CertificateProviderError) -> T
    ) async throws(CertificateProviderError) -> T {
        try await environment.executor.run(work)
    }
}

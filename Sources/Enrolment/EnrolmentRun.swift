import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Logging
import ProviderTransport
import Synchronization

/// One run of an enrolment, from the key to the stored identity. It resumes an interrupted run.
///
/// The key and the request are in the store before the server gets them, so that a process that is killed at any point resumes
/// with them. The existing identity stays until the new one has signed a probe.
struct EnrolmentRun {
    let provider: EnrollingProvider
    let interaction: any UserInteraction
    var environment: ProviderEnvironment { provider.environment }
    var storage: any IdentityStorage { environment.storage }
    var plan: EnrolmentPlan { provider.plan }
    var keys: OwnedKeys { provider.keys }
    var server: any EnrolmentProtocol { provider.server }
    private var retryPolicy: RetryPolicy { environment.transport.retryPolicy }

    init(_ provider: EnrollingProvider, _ interaction: any UserInteraction) {
        (self.provider, self.interaction) = (provider, interaction)
    }

    /// The stored identity. Without ``identity`` it can be replaced, but not renewed.
    struct Current {
        let key: KeyReference
        let identity: Identity?
        /// The subject that was requested, if the server has issued for another one.
        let requestedSubject: String?
    }

    func run() async throws(ProviderError) -> Identity {
        let current = try await currentIdentity()
        // One for the whole run: it has the secrets, and the time that the server may take.
        let session = try await server.session(interaction)
        guard let renewed = current?.identity, renewed.certificate.status(at: environment.now()) == .valid else {
            return try await enrol(session, after: current)
        }
        do throws(ProviderError) {
            return try await enrol(session, after: current, renewing: renewed)
        } catch {
            guard try await session.canEnrolAnew(after: error) else { throw error }
            environment.logger.warning(
                "the server has refused the request after the current certificate was shown; enrolling without it",
                metadata: ["reason": "\(error.message)"])
            return try await enrol(session, after: current)
        }
    }

    /// Makes or resumes one enrolment.
    ///
    /// - Parameters:
    ///   - current: The stored identity, which is replaced.
    ///   - renewed: The stored identity, to be renewed; `nil` for a first enrolment.
    private func enrol(
        _ session: any EnrolmentSession, after current: Current?, renewing renewed: Identity? = nil
    ) async throws(ProviderError) -> Identity {
        var stage = EnrolmentStage.before(nil)
        do throws(ProviderError) {
            let type = plan.keyType ?? server.defaultKeyType
            let early = server.needsKeyFirst ? try await begin(after: current?.key, type) : nil
            stage = .before(early.flatMap { $0.isNew ? $0.record : nil })
            let terms = try await session.connect(renewing: renewed)
            var begun =
                if let early { early } else {
                    try await begin(after: current?.key, plan.keyType ?? terms.keyType ?? type)
                }
            let names = names(renewing: renewed, current?.requestedSubject)
            if begun.record.csr.isEmpty {
                begun.record.csr = try await session.certificateRequest(
                    names, plan.usage, begun.key
                ).derRepresentation
                try await keep(begun.record)
            }
            let end = retryPolicy.now() + plan.timeout
            var polls = 0
            while true {
                stage = .asking(begun.record, isNew: begun.isNew)
                let subject = plan.names.displayText
                if polls == 0 {
                    interaction.report(
                        renewed == nil ? "Asking for a certificate for \(subject)" : "Renewing \(subject)")
                }
                let kept = Mutex(begun.record)
                let request = EnrolmentRequest(
                    names: names, usage: plan.usage, csr: CertificateRequest(derRepresentation: begun.record.csr),
                    key: begun.key,
                    current: renewed,
                    isPending: begun.record.isUndecided, state: begun.record.state
                ) { state throws(ProviderError) in
                    let record = kept.withLock { record in
                        record.state = state
                        return record
                    }
                    try await keep(record)
                }
                let answer: EnrolmentAnswer
                do throws(ProviderError) { answer = try await session.request(request) } catch {
                    stage = .asking(kept.withLock(\.self), isNew: begun.isNew)
                    throw error
                }
                begun.record = kept.withLock(\.self)
                let (certificates, authorities, key): ([X509Certificate], [X509Certificate], any IdentityKey)
                switch answer {
                case .issued(let issued, let more): (certificates, authorities, key) = (issued, more, begun.key)
                case .generated(let privateKey, let issued):
                    (certificates, authorities) = (issued, [])
                    key = try await takenIn(privateKey)
                case .pending(let delay):
                    begun.record.isUndecided = true
                    try await keep(begun.record)
                    polls += 1
                    try await wait(retryPolicy.delay(beforePoll: polls, retryAfter: delay), told: delay, until: end)
                    continue
                }
                stage = .answered(begun.record)
                let issued = try await IssuedCertificate(
                    certificates, for: key.publicKey, plan.names, usage: plan.usage, renewing: renewed?.certificate,
                    from: terms.authorities + authorities, through: terms.intermediates, at: environment.now())
                if !issued.hasRequestedSubject {
                    try noteSubject(of: issued, isOwn: key.publicKey == begun.key.publicKey)
                }
                try await requireTLS(issued, key)
                try await session.confirm(issued, request)
                stage = .done
                let identity = try await store(
                    issued, TrustBundle(terms.authorities + authorities), key, replacing: current)
                await session.noteOutcome(nil)
                return identity
            }
        } catch {
            // Before a token takes seconds to destroy the key: a process that is killed in that time must not lose it.
            await session.noteOutcome(error)
            if let record = stage.abandoned(after: error, isFinal: session.isFinalRefusal(error)) {
                await abandon(record, after: current?.key)
            }
            throw error
        }
    }

    /// Returns the stored identity. If its key is no longer in its key store, it can be replaced, but not renewed.
    private func currentIdentity() async throws(ProviderError) -> Current? {
        let entry = try await blocking { () throws(ProviderError) in
            try storage.entry(named: plan.storageName)
        }
        guard let entry, let kept = entry.key else { return nil }
        do throws(ProviderError) {
            if let key = try await keys.key(for: kept, interaction) {
                return Current(
                    key: kept, identity: try provider.identity(entry, key),
                    requestedSubject: entry.attributes[Self.requestedSubject])
            }
            environment.logger.warning("the key of the current identity is no longer in its key store")
        } catch {
            // A key store that is no longer configured may be lost, and is not waited for.
            if keys.isConfigured(kept) { throw error }
            environment.logger.warning(
                "the token with the current identity's key cannot be used", metadata: ["reason": "\(error)"])
        }
        return Current(key: kept, identity: nil, requestedSubject: nil)
    }

    /// The attribute of an entry whose certificate has another subject than the requested one: that one.
    private static let requestedSubject = "requested-subject"

    /// Returns the names for the request: those of the certificate to be renewed, as servers demand (RFC 7030, section
    /// 4.2.2), if it was issued for the configured names; else the configured names.
    private func names(renewing current: Identity?, _ requestedSubject: String?) -> CertificateRequest.Names {
        guard let leaf = current?.certificate, IssuedCertificate.hasAlternativeNames(leaf, of: plan.names),
            IssuedCertificate.hasSubject(leaf, of: plan.names) || requestedSubject == plan.names.subjectText,
            let names = try? CertificateRequest.Names(of: leaf)
        else { return plan.names }
        return names
    }

    /// Waits before the server is asked again about a pending request.
    ///
    /// - Parameter told: The delay that the server has asked for, if any.
    /// - Throws: `pending` if the delay exceeds the timeout; `userCancelled`.
    private func wait(
        _ delay: Duration, told: Duration?, until end: ContinuousClock.Instant
    ) async throws(ProviderError) {
        guard retryPolicy.now() + delay < end else {
            let date = told.map { "after \((environment.now() + Double($0.components.seconds)).formatted(.iso8601))" }
            throw ProviderError(
                .pending,
                "\(server.serverName) has not decided on the request yet; ask again \(date ?? "later"). The "
                    + "next attempt uses the same key.",
                retryAfter: told)
        }
        let next = retryPolicy.now() + max(delay, .milliseconds(100))
        do {
            while case let left = retryPolicy.now().duration(to: next), left > .zero {
                interaction.report("Waiting for \(server.serverName) to decide", remaining: left)
                try await retryPolicy.sleep(min(left, .seconds(1)))
            }
            interaction.report("", remaining: .zero)
        } catch {
            interaction.report("", remaining: .zero)
            throw ProviderError(
                .userCancelled, "The enrolment was cancelled. The next attempt uses the same key.")
        }
    }

    /// Warns that the server has issued for another subject than the requested one.
    ///
    /// - Parameter isOwn: Whether this host has made the key, so that the server has seen the request.
    /// - Throws: `protocolError` for a key that the server has sent: it may be another host's.
    private func noteSubject(of issued: IssuedCertificate, isOwn: Bool) throws(ProviderError) {
        let (subject, wanted) = (issued.chain[0].subject, plan.names.subjectText)
        guard isOwn else {
            throw ProviderError(
                .protocolError,
                "The certificate that the server has issued is refused: its subject is '\(subject)', but '\(wanted)' was "
                    + "requested, and the server has made the key. If the server is right, set 'subject' to its subject."
            )
        }
        switch plan.subjectRule {
        case .server: return
        case .preferred: break
        case .required:
            throw ProviderError(
                .protocolError,
                "The certificate that the server has issued is refused: its subject is '\(subject)', but '\(wanted)' was "
                    + "requested. If the server decides on the subject, set 'names' to server.")
        }
        environment.logger.warning(
            "the server has issued for another subject than the requested one; its alternative names are as requested",
            metadata: ["subject": "\(subject)", "requested": "\(wanted)"])
    }

    /// Checks that TLS takes what the server has issued, before anything is replaced by it. Does not use the key.
    private func requireTLS(
        _ issued: IssuedCertificate, _ key: any IdentityKey
    ) async throws(ProviderError) {
        let identity = try Identity(certificateChain: issued.chain, key: key, provenance: .init(provider: provider.id))
        try await blocking { () throws(ProviderError) in _ = try TLSCredentials(identity) }
    }

    private func store(
        _ issued: IssuedCertificate, _ trust: TrustBundle?, _ key: any IdentityKey, replacing old: Current?
    ) async throws(ProviderError) -> Identity {
        let reference = keys.store.reference(to: key)
        var attributes = ["server": server.source]
        if !issued.hasRequestedSubject { attributes[Self.requestedSubject] = plan.names.subjectText }
        let entry = StoredIdentity(
            certificateChain: issued.chain, key: reference, trust: trust, attributes: attributes)
        let identity = try provider.identity(entry, key)
        // The key signs a probe there.
        try await keys.store.storeChain(issued.chain, for: key, interaction)
        try await blocking { () throws(ProviderError) in
            try storage.setEntry(entry, named: plan.storageName)
        }
        environment.logger.debug("identity enrolled", metadata: ["subject": "\(identity.certificate.subject)"])
        do throws(ProviderError) {
            try await keep(nil)
            // One may have been issued to a process that ended before it stored it.
            try await keys.store.certificates?.removeOtherCertificates(
                than: identity.certificate, of: reference, interaction)
            // The replaced key is used for connections until the new identity is in use, unless those have it in memory.
            if old == nil || old?.identity?.key.exporter != nil {
                try await keys.destroyOthers(than: [reference], interaction)
            }
        } catch {
            // The new identity is there; the record of keys names the keys that are left.
            environment.logger.warning(
                "the replaced key and certificates could not be removed; the next enrolment tries again",
                metadata: ["reason": "\(error)"])
        }
        return identity
    }

    func blocking<T: Sendable>(
        _ work: @escaping @Sendable () throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        try await environment.executor.run(work)
    }
}

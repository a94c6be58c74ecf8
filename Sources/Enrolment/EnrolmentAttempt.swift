import CertificateProviding
import CertificateTLS
import FoundationEssentials
import Logging
import ProviderTransport
import Synchronization

/// One attempt of a run: a renewal, or an enrolment without the current identity.
struct EnrolmentAttempt {
    let run: EnrolmentRun
    let session: any EnrolmentSession
    /// The stored identity, which is replaced.
    let current: EnrolmentRun.Current?
    /// The stored identity, to be renewed; `nil` for a first enrolment.
    var renewed: Identity?
    private var plan: EnrolmentPlan { run.plan }
    private var server: any EnrolmentProtocol { run.server }
    private var environment: ProviderEnvironment { run.environment }
    private var interaction: any UserInteraction { run.interaction }
    private var retryPolicy: RetryPolicy { environment.transport.retryPolicy }

    /// An enrolment that can request its certificate.
    private struct Started {
        let terms: EnrolmentTerms
        let names: CertificateRequest.Names
        let key: EnrolmentRun.Key
    }

    /// Issued certificates, and the key that they are for: that of the request, or the server's.
    private struct Issuance {
        let request: EnrolmentRequest
        let certificates: [X509Certificate]
        let authorities: [X509Certificate]
        let key: any IdentityKey
    }

    func identity() async throws(ProviderError) -> Identity {
        let started = try await start()
        return try await accept(try await requestCertificate(started), started)
    }

    /// Connects to the server, and makes the key and the certificate request, or finds those of an interrupted run.
    private func start() async throws(ProviderError) -> Started {
        var early: EnrolmentRun.Key?
        do throws(ProviderError) {
            let type = plan.keyType ?? server.defaultKeyType
            let recovery = try await EnrolmentRecovery(of: current?.identity, run.provider)
            try await recovery?.wait()
            if server.needsKeyFirst { early = try await run.requestKey(after: current?.key, type) }
            let terms = try await session.connect(renewing: renewed)
            var key =
                if let early { early } else {
                    try await run.requestKey(after: current?.key, plan.keyType ?? terms.keyType ?? type)
                }
            let names = names()
            if key.record.csr.isEmpty {
                key.record.csr = try await session.certificateRequest(names, plan.usage, key.key).derRepresentation
                try await run.save(key.record)
            }
            // A key store that is away costs nothing, either.
            try await recovery?.note()
            return Started(terms: terms, names: names, key: key)
        } catch {
            throw await failure(error, isFinal: early?.isNew == true && !error.isPassing)
        }
    }

    /// Requests the certificate until the server has decided.
    private func requestCertificate(_ started: Started) async throws(ProviderError) -> Issuance {
        let record = Mutex(started.key.record)
        let subject = plan.names.displayText
        interaction.report(renewed == nil ? "Asking for a certificate for \(subject)" : "Renewing \(subject)")
        do throws(ProviderError) {
            let end = retryPolicy.now() + plan.timeout
            var polls = 0
            while true {
                let known = record.withLock(\.self)
                let request = EnrolmentRequest(
                    names: started.names, usage: plan.usage, csr: CertificateRequest(derRepresentation: known.csr),
                    key: started.key.key, current: renewed, isPending: known.isPending, state: known.state
                ) { state throws(ProviderError) in
                    try await run.change(record) { $0.state = state }
                }
                switch try await session.request(request) {
                case .issued(let certificates, let authorities):
                    return Issuance(
                        request: request, certificates: certificates, authorities: authorities, key: started.key.key)
                case .generated(let privateKey, let certificates):
                    return Issuance(
                        request: request, certificates: certificates, authorities: [],
                        key: try await run.serverKey(privateKey))
                case .pending(let delay):
                    try await run.change(record) { $0.isPending = true }
                    polls += 1
                    try await wait(retryPolicy.delay(beforePoll: polls, retryAfter: delay), told: delay, until: end)
                }
            }
        } catch {
            let record = record.withLock(\.self)
            // The protocol may have remembered a state of the server, such as an order, and can go on with it.
            let isRefused = started.key.isNew && !record.isPending && record.state.isEmpty && error.isRefusal
            throw await failure(error, isFinal: isRefused || session.isFinalRefusal(error))
        }
    }

    /// Checks and confirms the issued certificate, and stores the identity.
    private func accept(_ issuance: Issuance, _ started: Started) async throws(ProviderError) -> Identity {
        let (key, authorities) = (issuance.key, started.terms.authorities + issuance.authorities)
        let issued: IssuedCertificate
        do throws(ProviderError) {
            issued = try await IssuedCertificate(
                issuance.certificates, for: key.publicKey, plan.names, usage: plan.usage,
                renewing: renewed?.certificate, from: authorities, through: started.terms.intermediates,
                at: environment.now())
            if !issued.hasRequestedSubject {
                try noteSubject(of: issued, isOwn: key.publicKey == started.key.key.publicKey)
            }
            // TLS must take it before anything is replaced by it. That does not use the key.
            let identity = try Identity(
                certificateChain: issued.chain, key: key, provenance: .init(provider: run.provider.id))
            try await run.blocking { () throws(ProviderError) in _ = try TLSCredentials(identity) }
            try await session.confirm(issued, issuance.request)
        } catch { throw await failure(error, isFinal: !error.isPassing) }
        do throws(ProviderError) {
            let identity = try await run.store(issued, TrustBundle(authorities), key, replacing: current)
            await session.noteOutcome(nil)
            return identity
        } catch { throw await failure(error, isFinal: false) }
    }

    /// Notes a failure, and returns it.
    ///
    /// - Parameter isFinal: Whether another request with the same key would fail, too: it is then abandoned. Otherwise the next run repeats
    ///   the request: the answer may have been lost, or the server may still have to decide.
    private func failure(_ error: ProviderError, isFinal: Bool) async -> ProviderError {
        // Before a token takes seconds to destroy the key: a process that is killed in that time must not lose it.
        await session.noteOutcome(error)
        if isFinal { await run.abandon(after: current?.key) }
        return error
    }

    /// Returns the names for the request: those of the certificate to be renewed, as servers demand (RFC 7030, section
    /// 4.2.2), if it was issued for the configured names; else the configured names.
    private func names() -> CertificateRequest.Names {
        guard let leaf = renewed?.certificate, IssuedCertificate.hasAlternativeNames(leaf, of: plan.names),
            IssuedCertificate.hasSubject(leaf, of: plan.names)
                || current?.requestedSubject == plan.names.subjectText,
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
}

extension ProviderError {
    fileprivate var isPassing: Bool {
        [.pending, .timedOut, .unavailable, .userCancelled, .tokenNotPresent, .interactionRequired].contains(code)
    }

    /// Whether the server refuses the request, or this client.
    fileprivate var isRefusal: Bool { [.rejected, .configurationInvalid, .unsupportedAlgorithm].contains(code) }
}

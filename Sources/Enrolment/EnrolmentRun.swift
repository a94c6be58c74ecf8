import CertificateProviding
import Logging

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
            return try await EnrolmentAttempt(run: self, session: session, current: current).identity()
        }
        do throws(ProviderError) {
            return try await EnrolmentAttempt(run: self, session: session, current: current, renewed: renewed)
                .identity()
        } catch {
            guard try await session.canEnrolAnew(after: error) else { throw error }
            environment.logger.warning(
                "the server has refused the request after the current certificate was shown; enrolling without it",
                metadata: ["reason": "\(error.message)"])
            return try await EnrolmentAttempt(run: self, session: session, current: current).identity()
        }
    }

    /// Returns the stored identity. If its key is no longer in its key store, it can be replaced, but not renewed.
    private func currentIdentity() async throws(ProviderError) -> Current? {
        let entry = try await blocking { () throws(ProviderError) in
            try storage.entry(named: plan.storageName)
        }
        guard let entry, let reference = entry.key else { return nil }
        do throws(ProviderError) {
            if let key = try await keys.key(for: reference, interaction) {
                return Current(
                    key: reference, identity: try provider.identity(entry, key),
                    requestedSubject: entry.attributes[Self.requestedSubject])
            }
            environment.logger.warning("the key of the current identity is no longer in its key store")
        } catch {
            // A key store that is no longer configured may be lost, and is not waited for.
            if keys.isConfigured(reference) { throw error }
            environment.logger.warning(
                "the token with the current identity's key cannot be used", metadata: ["reason": "\(error)"])
        }
        return Current(key: reference, identity: nil, requestedSubject: nil)
    }

    /// The attribute of an entry whose certificate has another subject than the requested one: that one.
    static let requestedSubject = "requested-subject"

    /// Stores the identity, and discards what it replaces.
    func store(
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
            try await save(nil)
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

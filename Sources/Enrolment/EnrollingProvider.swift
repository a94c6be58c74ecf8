public import CertificateProviding
import FoundationEssentials
import Logging

/// A provider of identities that a server issues: the engine of every enrolment, for one ``EnrolmentProtocol``.
///
/// ``getCertificate(_:)`` makes a key in the configured key store, requests a certificate, checks the answer and stores the identity.
/// An existing identity is renewed with a new key, and stays until the new one has signed a probe. A process that is killed at any
/// moment resumes with the same key and request, and leaves no key that is not written down.
public final class EnrollingProvider: CertificateProvider {
    public let id: ProviderID
    package let server: any EnrolmentProtocol
    package let plan: EnrolmentPlan
    package let keys: OwnedKeys
    let environment: ProviderEnvironment
    private let enrolment = SharedCall<Identity>()

    /// Creates a provider. Contacts neither the server nor a key store.
    ///
    /// - Parameter environment: The provider's. Its transport has the clock that pending requests are waited by.
    public init(
        _ id: ProviderID, _ server: any EnrolmentProtocol, _ plan: EnrolmentPlan, _ environment: ProviderEnvironment
    ) {
        (self.id, self.server, self.plan, self.environment) = (id, server, plan, environment)
        keys = OwnedKeys(plan.keyStore, environment, record: "owned-\(plan.storageName)")
    }

    /// The name of the record of an enrolment, and of its lease.
    package var recordName: String { "enrolment-\(plan.storageName)" }

    /// The name of the record of the last order that replaced an expired identity.
    var recoveryRecordName: String { "recovery-\(plan.storageName)" }

    /// Enrols, or resumes an interrupted enrolment with the same key. Concurrent calls share one enrolment, which asks the user of
    /// the first one.
    ///
    /// - Throws: `pending` if the server has not decided: ask again later. `rejected` if it refuses, `unavailable` if
    ///   it does not answer, `timedOut` if it does not answer in time, `protocolError` if its answer is invalid or not
    ///   trusted, `operationNotAllowed` while another process is enrolling.
    public func getCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        do throws(ProviderError) {
            return try await enrolment.run { [self] () async throws(ProviderError) in
                let identity = try await environment.withLease(of: recordName) {
                    () async throws(ProviderError) in
                    try await EnrolmentRun(self, interaction).run()
                }
                guard let identity else { throw busy }
                return identity
            }
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Returns the identity in the store; `nil` if there is none. Blocks on the token if the key is in one.
    ///
    /// - Throws: The errors of the store and of the token; `interactionRequired` if the user would have to be asked
    ///   for the PIN.
    public func getStoredCertificate() throws(ProviderError) -> Identity? {
        do throws(ProviderError) {
            guard let entry = try environment.storage.entry(named: plan.storageName) else { return nil }
            guard let key = entry.key else {
                throw ProviderError(
                    .storeReadFailed, "The stored identity has no key; delete it and fetch it anew.")
            }
            return try identity(entry, try storedKey(key))
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Deletes the certificate and the keys, a pending request, and the data that was learnt about the server. Keys in a token are destroyed
    /// first, without asking for a PIN. An entry or record that is damaged names no key, and is deleted with a warning. The
    /// certificate is not revoked: the server is not contacted.
    ///
    /// - Throws: `operationNotAllowed` while another process is enrolling; the errors of the store and of the token.
    public func deleteStoredCertificate() throws(ProviderError) {
        do throws(ProviderError) {
            let deleted: Void? = try environment.storage.withLease(of: recordName) {
                () throws(ProviderError) in
                try keys.destroyAllStored(and: currentKey(warns: true))
                try environment.storage.removeRecord(named: recordName)
                try environment.storage.removeRecord(named: adviceRecordName)
                try environment.storage.removeRecord(named: recoveryRecordName)
                try server.forget()
                try environment.storage.removeEntry(named: plan.storageName)
            }
            if deleted == nil { throw busy }
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Logs out of the tokens that hold the keys, and closes their sessions.
    public func shutdown() async {
        await keys.shutdown()
        await server.shutdown()
    }

    /// Returns the key of the stored identity. An entry or record that is damaged names none, and may be deleted all the same.
    ///
    /// - Parameter warns: Whether a warning is logged then.
    private func currentKey(warns: Bool) throws(ProviderError) -> KeyReference? {
        var key: KeyReference?
        try environment.toleratingDamage(warns: warns) { () throws(ProviderError) in
            key = try environment.storage.entry(named: plan.storageName)?.key
        }
        // One of a newer version is not deleted.
        try environment.toleratingDamage(warns: warns) { () throws(ProviderError) in _ = try record() }
        return key
    }

    /// Returns the record of an enrolment that has no certificate yet. Blocks.
    func record() throws(ProviderError) -> EnrolmentRecord? {
        try environment.storage.record(named: recordName).map { record throws(ProviderError) in
            try EnrolmentRecord(record)
        }
    }

    func identity(
        _ entry: StoredIdentity, _ key: any IdentityKey
    ) throws(ProviderError) -> Identity {
        try Identity(
            certificateChain: entry.certificateChain, key: key, trust: entry.trust, usage: plan.usage,
            provenance: .init(provider: id, source: entry.attributes["server"]))
    }

    func storedKey(_ key: KeyReference) throws(ProviderError) -> any IdentityKey {
        do throws(ProviderError) { return try keys.storedKey(key) } catch {
            switch error.code {
            case .interactionRequired: throw missingPIN(of: key)
            case .notFound:
                throw ProviderError(
                    .notFound,
                    "The private key of the stored identity is gone from its key store (\(DisplayText.visible(key.uri))); have "
                        + "a new identity made: certprov fetch --force.")
            default: throw error
            }
        }
    }

    private func missingPIN(of key: KeyReference) -> ProviderError {
        ProviderError(
            .interactionRequired,
            keys.isConfigured(key)
                ? "The key is in a key store whose PIN is not configured (\(key.shownURI)); set 'key-pin-source', or a "
                    + "'pin-source' in the URI of 'key'."
                : "The key is in a key store (\(key.shownURI)) that 'key' no longer names, and whose PIN is not configured; "
                    + "set 'key' to it again, or have a new identity made with the present 'key': certprov fetch --force."
        )
    }

    /// The error while another process has the lease.
    var busy: ProviderError {
        ProviderError(
            .operationNotAllowed, "Another process is enrolling with \(server.serverName); wait until it has finished.",
            reason: .busy)
    }
}

extension KeyReference {
    /// The URI without its query, which names the module and the source of the PIN.
    var shownURI: String { DisplayText.visible(String(uri.prefix { $0 != "?" })) }

    func isSame(as other: KeyReference) -> Bool { publicKey == other.publicKey }
}

extension EnrollingProvider: DeletionAnnouncing {
    public var deletions: (any DeletionAnnouncing)? { self }

    /// Returns a sentence for each object that ``deleteStoredCertificate()`` destroys in a token.
    public func announcedDeletions() async throws(ProviderError) -> [String] {
        do throws(ProviderError) {
            let current = try await environment.executor.run { [self] () throws(ProviderError) in
                try currentKey(warns: false)
            }
            return try await keys.announceDestruction(and: current)
        } catch {
            throw error.attributed(to: id)
        }
    }
}

extension EnrollingProvider: ReplacedIdentityDiscarding {
    public var replacement: (any ReplacedIdentityDiscarding)? { self }

    /// Destroys the key that the stored identity has replaced, and the certificates beside it in a token.
    public func discardReplaced(
        by identity: Identity, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        do throws(ProviderError) {
            // Without the lease: another process is enrolling, and destroys the key itself.
            guard try await keysInUse(beside: identity.certificate) != nil else { return }
            _ = try await environment.withLease(of: recordName) { () throws(ProviderError) in
                guard let used = try await keysInUse(beside: identity.certificate) else { return }
                try await keys.destroyOthers(than: used, interaction)
            }
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Returns the keys of the stored identity and of a pending request, if there is another one and `leaf` is the stored leaf.
    private func keysInUse(beside leaf: X509Certificate) async throws(ProviderError) -> [KeyReference]? {
        try await environment.executor.run { [self] () throws(ProviderError) in
            guard let entry = try environment.storage.entry(named: plan.storageName),
                entry.certificateChain.first == leaf, let key = entry.key
            else { return nil }
            let used = [key, try record()?.key].compactMap(\.self)
            return try keys.recorded().contains { one in !used.contains(where: one.isSame) } ? used : nil
        }
    }
}

import CertificateProviding
import Logging
import Synchronization

/// The key and the request of an enrolment, which outlast a run in the store.
extension Enrolment {
    /// Returns the key and the request to enrol with: those of an interrupted enrolment, or new ones.
    func pendingEnrolment(
        after current: OwnedKey?, _ content: RequestContent
    ) async throws(CertificateProviderError) -> Begun {
        let kept = try await blocking { () throws(CertificateProviderError) in
            try storage.record(named: settings.recordName).map { record throws(CertificateProviderError) in
                try PendingEnrolment(record)
            }
        }
        if let kept, let current, kept.key.isSame(as: current) {
            // The key has its certificate: the last run ended before it could delete the record.
            do throws(CertificateProviderError) { try await end(kept) } catch {
                environment.logger.warning(
                    "a replaced key is still in its token; destroy it with the token's own tool",
                    metadata: ["key": "\(kept.replaced?.reference?.uri ?? "")", "reason": "\(error)"])
            }
        } else if let kept {
            // Of an enrolment that ended before its identity was stored. The current key is not it.
            if let replaced = kept.replaced, current.map(replaced.isSame) != true { try await discard(replaced) }
            // Only if it fits the current configuration, which may have been changed because the last run failed.
            if isInPlace(kept.key) {
                if let key = try await keys.find(kept.key, interaction) {
                    if fits(key) { return Begun(pending: try await requested(kept, key, content), key: key) }
                } else {
                    environment.logger.warning(
                        "the key of a pending enrolment is no longer in its key store; a new key is made")
                }
            }
            try await discard(kept.key)
        }
        let type = if let type = settings.keyType { type } else { try content.wishes.keyToMake() ?? .p256 }
        let use: KeyUse = settings.enrolmentProtocol == .scep ? [.signing, .pkcs1Decryption] : .signing
        let made = Mutex<OwnedKey?>(nil)
        let key = try await keys.make(type, for: settings.names, use: use, interaction) {
            kept throws(CertificateProviderError) in
            try await keep(PendingEnrolment(key: kept))
            made.withLock { $0 = kept }
        }
        guard let kept = made.withLock({ $0 }) else {
            throw CertificateProviderError(.internal, "A key was made and not written down.")
        }
        let pending = try await requested(PendingEnrolment(key: kept), key, content)
        return Begun(pending: pending, key: key, new: pending)
    }

    /// The key and the request of the current run.
    struct Begun {
        let pending: PendingEnrolment
        let key: any IdentityKey
        /// The same as `pending` if this run has made the key; else `nil`.
        var new: PendingEnrolment?
    }

    /// Whether a key is in the configured key store.
    private func isInPlace(_ kept: OwnedKey) -> Bool {
        kept.reference.map(keys.isConfigured) ?? keys.store.properties.importsKeys
    }

    /// Whether a key has the configured type.
    private func fits(_ key: any IdentityKey) -> Bool { settings.keyType.map { $0.fits(key.publicKey) } ?? true }

    /// Destroys a key that no identity has. If its key store is no longer configured, and fails, the key is left there: that
    /// store may be lost, and must not block an enrolment.
    private func discard(_ key: OwnedKey) async throws(CertificateProviderError) {
        do throws(CertificateProviderError) { try await keys.destroy(key, interaction) } catch {
            guard let reference = key.reference, !keys.isConfigured(reference) else { throw error }
            environment.logger.warning(
                "a key is left in a key store that cannot be used",
                metadata: ["key": "\(reference.uri)", "reason": "\(error)"])
        }
    }

    /// Returns the enrolment with its request, which is made and stored once and then stays the same.
    private func requested(
        _ pending: PendingEnrolment, _ key: any IdentityKey, _ content: RequestContent
    ) async throws(CertificateProviderError) -> PendingEnrolment {
        guard pending.csr.isEmpty else { return pending }
        var pending = pending
        pending.csr = try await content.signed(with: key)
        try await keep(pending)
        return pending
    }

    /// Takes in the key that the server has made, and destroys the one that the request was signed with.
    func taken(
        _ privateKey: SecretBytes, insteadOf request: PendingEnrolment
    ) async throws(CertificateProviderError) -> (PendingEnrolment, any IdentityKey) {
        let made = Mutex<PendingEnrolment?>(nil)
        let key = try await keys.importKey(privateKey, for: settings.names, interaction) {
            owned throws(CertificateProviderError) in
            var pending = PendingEnrolment(key: owned)
            pending.replaced = request.key
            try await keep(pending)
            pending.replaced = nil
            made.withLock { $0 = pending }
        }
        guard let pending = made.withLock({ $0 }) else {
            throw CertificateProviderError(.internal, "A key was taken in and not written down.")
        }
        try await keys.destroy(request.key, interaction)
        return (pending, key)
    }

    /// Stores the enrolment; `nil` deletes the record.
    func keep(_ pending: PendingEnrolment?) async throws(CertificateProviderError) {
        try await blocking { () throws(CertificateProviderError) in
            try storage.updateRecord(named: settings.recordName) { _ in
                pending?.encoded ?? SecretBytes(copying: [])
            }
        }
    }

    /// Deletes the record of a completed enrolment, and destroys the key that it has replaced.
    func end(_ pending: PendingEnrolment) async throws(CertificateProviderError) {
        if let replaced = pending.replaced { try await keys.destroy(replaced, interaction) }
        try await keep(nil)
    }

    /// Destroys the key that the stored identity has replaced, if `leaf` is the leaf of the stored identity.
    func discardReplaced(by leaf: X509Certificate) async throws(CertificateProviderError) {
        guard try await replacement(by: leaf) != nil else { return }
        _ = try await environment.withLease(of: settings.recordName) { () throws(CertificateProviderError) in
            if let replacement = try await replacement(by: leaf) { try await end(replacement) }
        }
    }

    /// Returns the record of the enrolment that made the stored identity, if a replaced key is still to be destroyed.
    private func replacement(by leaf: X509Certificate) async throws(CertificateProviderError) -> PendingEnrolment? {
        try await blocking { () throws(CertificateProviderError) in
            guard let record = try storage.record(named: settings.recordName) else { return nil }
            let pending = try PendingEnrolment(record)
            guard pending.replaced != nil,
                let entry = try storage.entry(named: settings.entryName), entry.certificateChain.first == leaf,
                let current = OwnedKey(entry)
            else { return nil }
            return current.isSame(as: pending.key) ? pending : nil
        }
    }

    /// Deletes the record of a failed request, and destroys its key in a token.
    func abandon(_ pending: PendingEnrolment) async {
        do throws(CertificateProviderError) {
            try await keys.destroy(pending.key, interaction)
            try await keep(nil)
        } catch {
            environment.logger.warning(
                "the key of a refused request could not be deleted; the next enrolment uses it",
                metadata: ["reason": "\(error)"])
        }
    }
}

import CertificateProviding
import Logging
import Synchronization

/// The key and the request of an enrolment, as they outlast a run.
extension Enrolment {
    /// The key that is to be certified: that of an enrolment that did not come to its end, or a new one.
    func pendingEnrolment(
        after current: KeptKey?, _ content: RequestContent
    ) async throws(CertificateProviderError) -> Begun {
        let kept = try await blocking { () throws(CertificateProviderError) in
            try storage.record(named: settings.recordName).flatMap { record throws(CertificateProviderError) in
                try PendingEnrolment(record)
            }
        }
        if let kept, let current, kept.key.isSame(as: current) {
            // It has its certificate already: the last run ended before it could forget it.
            do throws(CertificateProviderError) { try await end(kept) } catch {
                environment.logger.warning(
                    "a key that was replaced is still in its token; destroy it with the token's own tool",
                    metadata: ["key": "\(kept.replaced?.tokenURI ?? "")", "reason": "\(error)"])
            }
        } else if let kept {
            if let key = try await keys.find(kept.key, interaction) {
                // As it is configured now, which may be why the last one has failed.
                if fits(kept.key, key) { return Begun(pending: try await requested(kept, key, content), key: key) }
            } else {
                environment.logger.warning("the key of a pending enrolment is gone from its token; another one is made")
            }
            try await keys.discard(kept.key, interaction)
        }
        let type = if let type = settings.keyType { type } else { try content.wishes.keyToMake() ?? .p256 }
        let use: KeyUse = settings.enrolmentProtocol == .scep ? [.signing, .decryption] : .signing
        let made = Mutex<KeptKey?>(nil)
        let (records, name) = (storage, settings.recordName)
        let key = try await keys.make(type, for: settings.names, use: use, interaction) {
            kept throws(CertificateProviderError) in
            try records.updateRecord(named: name) { _ in PendingEnrolment(key: kept).encoded }
            made.withLock { $0 = kept }
        }
        guard let kept = made.withLock({ $0 }) else {
            throw CertificateProviderError(.internal, "A key was made and not written down.")
        }
        let pending = try await requested(PendingEnrolment(key: kept), key, content)
        return Begun(pending: pending, key: key, new: pending)
    }

    /// What an enrolment goes on with.
    struct Begun {
        let pending: PendingEnrolment
        let key: any IdentityKey
        /// The same, where this run has made the key.
        var new: PendingEnrolment?
    }

    /// Whether a key is of the kind, and lives where, new ones do.
    private func fits(_ kept: KeptKey, _ key: any IdentityKey) -> Bool {
        let isAtHome = kept.tokenURI.map { keys.tokens.isConfigured(forKey: $0) } ?? (settings.token == nil)
        return isAtHome && settings.keyType.map { $0.fits(key.publicKey) } ?? true
    }

    /// With its request, which stays the same from then on.
    private func requested(
        _ pending: PendingEnrolment, _ key: any IdentityKey, _ content: RequestContent
    ) async throws(CertificateProviderError) -> PendingEnrolment {
        guard pending.csr.isEmpty else { return pending }
        var pending = pending
        pending.csr = try await content.signed(with: key)
        try await keep(pending)
        return pending
    }

    func keep(_ pending: PendingEnrolment?) async throws(CertificateProviderError) {
        try await blocking { () throws(CertificateProviderError) in
            try storage.updateRecord(named: settings.recordName) { _ in
                pending?.encoded ?? SecretBytes(copying: [])
            }
        }
    }

    /// Forgets an enrolment that has come to its end, and the key that the new one replaces.
    func end(_ pending: PendingEnrolment) async throws(CertificateProviderError) {
        if let replaced = pending.replaced { try await keys.discard(replaced, interaction) }
        try await keep(nil)
    }

    /// Destroys the key that the stored identity has replaced, if there is one and that is the identity in use.
    func discardReplaced(by leaf: X509Certificate) async throws(CertificateProviderError) {
        guard try await replacement(by: leaf) != nil else { return }
        let claim = try await blocking { () throws(CertificateProviderError) in
            try storage.leaseRecord(named: settings.recordName)
        }
        guard let claim else { return }
        defer { claim.isUnsettled = false }
        if let replacement = try await replacement(by: leaf) { try await end(replacement) }
    }

    /// The enrolment that has made the stored identity, where another one's key is left of it.
    private func replacement(by leaf: X509Certificate) async throws(CertificateProviderError) -> PendingEnrolment? {
        try await blocking { () throws(CertificateProviderError) in
            guard let record = try storage.record(named: settings.recordName),
                let pending = try PendingEnrolment(record), pending.replaced != nil,
                let entry = try storage.entry(named: settings.entryName), entry.certificateChain.first == leaf,
                let current = KeptKey(entry)
            else { return nil }
            return current.isSame(as: pending.key) ? pending : nil
        }
    }

    /// Forgets a request that has found its end without a certificate, and leaves nothing of it on a token.
    func abandon(_ pending: PendingEnrolment) async {
        do throws(CertificateProviderError) {
            try await keys.discard(pending.key, interaction)
            try await keep(nil)
        } catch {
            environment.logger.warning(
                "the key of a refused request is still there; the next enrolment uses it",
                metadata: ["reason": "\(error)"])
        }
    }
}

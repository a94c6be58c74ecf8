import CertificateProviding
import Logging
import Synchronization

/// The key of an enrolment, which outlasts a run in its store.
extension EnrolmentRun {
    /// The key of a request, which may be that of an interrupted run.
    struct Key {
        var record: EnrolmentRecord
        let key: any IdentityKey
        /// Whether this run has made the key.
        let isNew: Bool
    }

    /// Returns the key to go on with: that of an interrupted run, if it is there and fits the configuration, or a new one. Destroys the keys
    /// that neither this enrolment nor the stored identity has.
    ///
    /// - Parameters:
    ///   - current: The key of the stored identity.
    ///   - type: The type of a new key.
    func requestKey(after current: KeyReference?, _ type: KeyType) async throws(ProviderError) -> Key {
        let interrupted = try await interrupted(after: current)
        await destroyOthers(than: [current, interrupted?.record.key])
        if let interrupted { return interrupted }
        let key: any IdentityKey
        do throws(ProviderError) {
            key = try await keys.make(NewKey(type, label: label, use: server.keyUse), interaction)
        } catch {
            guard error.code == .unsupportedAlgorithm, let advice = server.keyAdvice else { throw error }
            var error = error
            error.message += " \(advice)"
            throw error
        }
        let record = EnrolmentRecord(key: keys.store.reference(to: key))
        try await save(record)
        return Key(record: record, key: key, isNew: true)
    }

    /// Returns the key of an interrupted run; `nil` if there is none, or none to go on with.
    private func interrupted(after current: KeyReference?) async throws(ProviderError) -> Key? {
        let record = try await blocking { () throws(ProviderError) in try provider.record() }
        guard let record else { return nil }
        // If it is the current key, the last run ended before it could delete the record. The configuration may have been
        // changed because the last run failed.
        if current.map(record.key.isSame) != true, keys.isConfigured(record.key) {
            if let key = try await keys.key(for: record.key, interaction) {
                if plan.keyType?.fits(key.publicKey) != false { return Key(record: record, key: key, isNew: false) }
            } else {
                environment.logger.warning(
                    "the key of a pending enrolment is no longer in its key store; a new key is made")
            }
        }
        // The record of a new key replaces this one.
        return nil
    }

    /// Stores the key that the server has made. A kill before the identity is stored leaves the request with its own key.
    func serverKey(_ privateKey: SecretBytes) async throws(ProviderError) -> any IdentityKey {
        let made = try SoftwareKey(pkcs8: privateKey, location: .store)
        if let type = plan.keyType, !type.fits(made.publicKey) {
            throw ProviderError(
                .protocolError,
                "The server has made a key of type \(made.publicKey.displayName), but 'key-type' is "
                    + "\(type); configure the server to make such keys, or change 'key-type'.")
        }
        return try await keys.make(NewKey(pkcs8: privateKey, label: label), interaction)
    }

    private var label: String { plan.names.commonName ?? plan.names.displayText }

    /// Changes the record, and stores it.
    func change(
        _ record: borrowing Mutex<EnrolmentRecord>, _ change: (inout EnrolmentRecord) -> Void
    ) async throws(ProviderError) {
        let changed = record.withLock { record in
            change(&record)
            return record
        }
        try await save(changed)
    }

    /// Stores the record; `nil` deletes it.
    func save(_ record: EnrolmentRecord?) async throws(ProviderError) {
        try await blocking { () throws(ProviderError) in
            let encoded = try record?.encoded() ?? SecretBytes(copying: [])
            try storage.updateRecord(named: provider.recordName) { _ in encoded }
        }
    }

    /// Deletes a failed enrolment, and destroys its key. If that fails, the record stays: the next run uses the key.
    func abandon(after current: KeyReference?) async {
        do throws(ProviderError) {
            try await keys.destroyOthers(than: [current].compactMap(\.self), interaction)
            try await save(nil)
        } catch {
            environment.logger.warning(
                "the key of a refused request could not be deleted; the next enrolment uses it",
                metadata: ["reason": "\(error)"])
        }
    }

    /// Destroys the keys of runs that were killed, and the one that the last renewal has replaced. A key that stays is tried again by
    /// the next run, and blocks no enrolment.
    private func destroyOthers(than kept: [KeyReference?]) async {
        do throws(ProviderError) {
            try await keys.destroyOthers(than: kept.compactMap(\.self), interaction)
        } catch {
            environment.logger.warning(
                "a key that is no longer used could not be destroyed; the next enrolment tries again",
                metadata: ["reason": "\(error)"])
        }
    }
}

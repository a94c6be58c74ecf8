import CertificateProviding
import Logging

/// The key of an enrolment, which outlasts a run in its store.
extension EnrolmentRun {
    /// An enrolment with its key.
    struct Begun {
        var record: EnrolmentRecord
        let key: any IdentityKey
        /// Whether this run has made the key.
        let isNew: Bool
    }

    /// Returns the enrolment to go on with: an interrupted one, if its key is there and fits the configuration, or a new one.
    /// Destroys the keys that neither this enrolment nor the stored identity has.
    ///
    /// - Parameters:
    ///   - current: The key of the stored identity.
    ///   - type: The type of a new key.
    func begin(after current: KeyReference?, _ type: KeyType) async throws(ProviderError) -> Begun {
        let kept = try await resumable(after: current)
        await destroyOthers(than: [current, kept?.record.key])
        if let kept { return kept }
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
        try await keep(record)
        return Begun(record: record, key: key, isNew: true)
    }

    /// Returns the interrupted enrolment; `nil` if there is none, or none to go on with.
    private func resumable(after current: KeyReference?) async throws(ProviderError) -> Begun? {
        let kept = try await blocking { () throws(ProviderError) in try provider.record() }
        guard let kept else { return nil }
        // If it is the current key, the last run ended before it could delete the record. The configuration may have been
        // changed because the last run failed.
        if current.map(kept.key.isSame) != true, keys.isConfigured(kept.key) {
            if let key = try await keys.key(for: kept.key, interaction) {
                if plan.keyType?.fits(key.publicKey) != false { return Begun(record: kept, key: key, isNew: false) }
            } else {
                environment.logger.warning(
                    "the key of a pending enrolment is no longer in its key store; a new key is made")
            }
        }
        // The record of a new key replaces this one.
        return nil
    }

    /// Takes in the key that the server has made. A kill before the identity is stored leaves the request with its own key.
    func takenIn(_ privateKey: SecretBytes) async throws(ProviderError) -> any IdentityKey {
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

    /// Stores the enrolment; `nil` deletes the record.
    func keep(_ record: EnrolmentRecord?) async throws(ProviderError) {
        try await blocking { () throws(ProviderError) in
            let encoded = try record?.encoded() ?? SecretBytes(copying: [])
            try storage.updateRecord(named: provider.recordName) { _ in encoded }
        }
    }

    /// Deletes a failed enrolment, and destroys its key. If that fails, the record stays: the next run uses the key.
    func abandon(_ record: EnrolmentRecord, after current: KeyReference?) async {
        do throws(ProviderError) {
            try await keys.destroyOthers(than: [current].compactMap(\.self), interaction)
            try await keep(nil)
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

/// The progress of an enrolment. It decides what an error means for the key.
enum EnrolmentStage {
    /// No request was sent. The value is the enrolment whose key this run has made, if it has made one.
    case before(EnrolmentRecord?)
    /// The request was sent; the server may have issued.
    case asking(EnrolmentRecord, isNew: Bool)
    /// The server has answered.
    case answered(EnrolmentRecord)
    /// The issued certificate was accepted.
    case done

    /// Returns the enrolment that an error ends for good, since another request with the same key would fail, too;
    /// `nil` if the request is to be repeated: the answer may have been lost, or the server may still have to decide.
    ///
    /// - Parameter isFinal: Whether the server has processed the request and refused it.
    func abandoned(after error: ProviderError, isFinal: Bool) -> EnrolmentRecord? {
        switch self {
        case .before(let new): error.isPassing ? nil : new
        case .asking(let record, let isNew):
            // The protocol has remembered a state of the server, such as an order, and can go on with it.
            isFinal || (isNew && !record.isUndecided && record.state.isEmpty && error.isRefusal) ? record : nil
        case .answered(let record): error.isPassing ? nil : record
        case .done: nil
        }
    }
}

extension ProviderError {
    fileprivate var isPassing: Bool {
        [.pending, .timedOut, .unavailable, .userCancelled, .tokenNotPresent, .interactionRequired].contains(code)
    }

    /// Whether the server refuses the request, or this client.
    fileprivate var isRefusal: Bool { [.rejected, .configurationInvalid, .unsupportedAlgorithm].contains(code) }
}

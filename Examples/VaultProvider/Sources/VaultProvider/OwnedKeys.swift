import CertificateProviding
import FoundationEssentials
import Logging

/// The provider's private keys, in whatever key store.
///
/// A record names every key from before its first use until after its destruction. A process that is killed at any moment
/// so leaves no key that is not in the record, and the next enrolment destroys those that no identity refers to.
struct OwnedKeys: Sendable {
    let stores: KeyStoreSet
    let environment: ProviderEnvironment
    let recordName: String

    /// Makes a key in the configured key store.
    func make(
        _ type: KeyType, label: String, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> any IdentityKey {
        try await stores.configured.make(type, label: label, use: .signing, interaction) {
            key throws(CertificateProviderError) in
            let reference = stores.configured.reference(to: key)
            try await environment.executor.run { () throws(CertificateProviderError) in
                try change { $0.append(reference) }
            }
        }
    }

    /// Destroys all keys except the stored identity's. A key in a key store that is no longer configured and cannot be
    /// reached stays in the record.
    func destroyOthers(
        than current: KeyReference?, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        let keys = try await environment.executor.run(all)
        for key in keys where current.map(key.isSame) != true {
            do throws(CertificateProviderError) {
                try await stores.store(of: key).destroy(key, interaction)
            } catch {
                try tolerate(error, about: key)
                continue
            }
            try await environment.executor.run { () throws(CertificateProviderError) in
                try change { $0.removeAll(where: key.isSame) }
            }
        }
    }

    /// Destroys a key without asking for a PIN, for a deletion, which empties the record afterwards. Blocks.
    func destroyStored(_ key: KeyReference) throws(CertificateProviderError) {
        do throws(CertificateProviderError) { try stores.store(of: key).destroyStored(key) } catch {
            try tolerate(error, about: key)
        }
    }

    /// Returns the key without asking for a PIN. Blocks for a bounded time.
    ///
    /// - Throws: `notFound` if it is gone.
    func storedKey(_ key: KeyReference) throws(CertificateProviderError) -> any IdentityKey {
        if let key = try stores.store(of: key).storedKey(for: key) { return key }
        throw CertificateProviderError(
            .notFound,
            "The private key of the stored identity is gone from its key store (\(key.uri)); fetch a new identity.")
    }

    /// Logs an error of a key store that is no longer configured: that store may be lost, and must not block enrolments.
    private func tolerate(
        _ error: CertificateProviderError, about key: KeyReference
    ) throws(CertificateProviderError) {
        if stores.isConfigured(key) { throw error }
        environment.logger.warning(
            "a key is left in a key store that cannot be used", metadata: ["key": "\(key.uri)", "reason": "\(error)"])
    }

    // MARK: - The record

    /// Returns all keys that were made and not destroyed. Blocks.
    func all() throws(CertificateProviderError) -> [KeyReference] {
        try Self.decode(try environment.storage.record(named: recordName))
    }

    private func change(_ change: (inout [KeyReference]) -> Void) throws(CertificateProviderError) {
        try environment.storage.updateRecord(named: recordName) { record throws(CertificateProviderError) in
            var keys = try Self.decode(record)
            change(&keys)
            do { return SecretBytes(copying: try JSONEncoder().encode(keys)) } catch {
                throw CertificateProviderError(.internal, "The record of keys cannot be encoded.", underlying: error)
            }
        }
    }

    private static func decode(_ record: SecretBytes?) throws(CertificateProviderError) -> [KeyReference] {
        guard let record, !record.isEmpty else { return [] }
        do { return try JSONDecoder().decode([KeyReference].self, from: record.withUnsafeBytes { Data($0) }) } catch {
            throw CertificateProviderError(
                .storeReadFailed, "The record of the provider's keys is damaged; delete the identity to discard it.",
                underlying: error)
        }
    }
}

extension KeyReference {
    func isSame(as other: KeyReference) -> Bool { publicKey.isSameKey(as: other.publicKey) }
}

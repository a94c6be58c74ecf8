import FoundationEssentials
import Logging

/// The private keys that a provider has made and not destroyed, in whatever key store.
///
/// A record in the provider's storage names every key from before its first use until after its destruction. A process
/// that is killed at any moment so leaves no key that the record does not name, and the next call of
/// ``destroyOthers(than:_:)`` destroys those that are not in use.
///
/// A user calls ``destroyOthers(than:_:)`` for the leftovers of killed runs, ``make(_:_:)``, and, if its work fails,
/// ``destroyOthers(than:_:)`` again; the engine of the module Enrolment does so for its providers. Change the keys only with the
/// lease of the record (``ProviderEnvironment/withLease(of:_:)``): another process may have made a key that is not in use yet.
public struct OwnedKeys: Sendable {
    private let stores: KeyStoreSet
    private let environment: ProviderEnvironment
    private let recordName: String

    /// Creates the set of a provider's keys. Reads nothing yet.
    ///
    /// - Parameters:
    ///   - store: The key store that makes new keys: the value of the provider's parameter.
    ///   - environment: The provider's. Its storage has the record, and its key stores have the keys that were made
    ///     under an earlier configuration.
    ///   - record: The name of the record.
    public init(_ store: any KeyStore, _ environment: ProviderEnvironment, record: String) {
        stores = KeyStoreSet(store, and: environment.keyStores)
        self.environment = environment
        recordName = record
    }

    /// The key store that makes new keys.
    public var store: any KeyStore { stores.configured }

    /// Makes a key in ``store``, or takes one in. It is in the record before it may be used.
    ///
    /// - Throws: As ``KeyStore/make(_:_:remember:)``, and the errors of the storage. The key is then destroyed,
    ///   or in the record.
    public func make(
        _ new: NewKey, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> any IdentityKey {
        try await store.make(new, interaction) { key throws(ProviderError) in
            let reference = store.reference(to: key)
            try await environment.executor.run { () throws(ProviderError) in
                try change { $0.append(reference) }
            }
        }
    }

    /// Returns the keys that the record names. Blocks.
    ///
    /// - Throws: `storeReadFailed` for a record that is damaged or that a newer version has written, and other errors of the
    ///   storage.
    public func recorded() throws(ProviderError) -> [KeyReference] {
        try Self.recorded(in: environment.storage, record: recordName)
    }

    /// As ``recorded()``, without a key store.
    package static func recorded(
        in storage: any IdentityStorage, record: String
    ) throws(ProviderError) -> [KeyReference] { try named(in: try storage.record(named: record)) }

    /// Whether a key is in the key store that is configured now. Another one may be lost, and must not block an enrolment.
    public func isConfigured(_ key: KeyReference) -> Bool { stores.isConfigured(key) }

    /// Returns a key; `nil` when it is gone. May ask for a PIN.
    ///
    /// - Throws: As ``KeyStore/key(for:_:)``.
    public func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? {
        try await store(of: key).key(for: key, interaction)
    }

    /// Takes a key out of the record without destroying it: the user has its certificate request or its URI now.
    ///
    /// - Throws: The errors of the storage. The key is then in the record still.
    package func handOver(_ key: KeyReference) async throws(ProviderError) {
        try await environment.executor.run { () throws(ProviderError) in
            try change { $0.removeAll(where: key.isSame) }
        }
    }

    /// Returns a key without asking for a PIN. Blocks for a bounded time.
    ///
    /// - Throws: `notFound` if it is gone, `interactionRequired` if the user would have to be asked, and other errors of
    ///   its key store.
    public func storedKey(_ key: KeyReference) throws(ProviderError) -> any IdentityKey {
        if let key = try stores.store(of: key).storedKey(for: key) { return key }
        throw ProviderError(
            .notFound,
            "The private key of the stored identity is gone from its key store (\(key.uri.withVisibleControls)); fetch a "
                + "new identity.")
    }

    /// Destroys all keys but those in use. A key that cannot be destroyed stays in the record, and keeps no other one from being
    /// destroyed. If it is in a key store that is no longer configured, a warning is logged and nothing thrown: the store may be
    /// lost, and must not block enrolments.
    ///
    /// - Parameter used: The keys in use.
    /// - Throws: `storeReadFailed` for a record that is damaged or that a newer version has written, other errors of the
    ///   storage, and the first one of the configured key store.
    public func destroyOthers(
        than used: [KeyReference], _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        let keys = try await environment.executor.run { () throws(ProviderError) in try recorded() }
        var failure: ProviderError?
        for key in keys where !used.contains(where: key.isSame) {
            do throws(ProviderError) {
                try await store(of: key).destroy(key, interaction)
            } catch {
                let reason = error
                do throws(ProviderError) {
                    try await environment.executor.run { () throws(ProviderError) in
                        try tolerate(reason, about: key)
                    }
                } catch {
                    failure = failure ?? error
                    // A person who has cancelled is not asked for the next one.
                    if error.code == .userCancelled { break }
                }
                continue
            }
            try await handOver(key)
        }
        if let failure { throw failure }
    }

    /// Destroys all keys without asking for a PIN, and empties the record: for
    /// ``CertificateProvider/deleteStoredCertificate()``. Blocks. A damaged record names no key, and is emptied too, with a
    /// warning. If a key store that is no longer configured fails, a warning is logged.
    ///
    /// - Parameter current: The key of the stored identity, in case the record is damaged; `nil` for none.
    /// - Throws: `storeReadFailed` for a record that a newer version has written, other errors of the storage, those of
    ///   the configured key store, and `interactionRequired` if it would have to ask. The keys that are left are then in
    ///   the record still.
    public func destroyAllStored(and current: KeyReference?) throws(ProviderError) {
        for key in try all(and: current, warns: true) {
            do throws(ProviderError) { try stores.store(of: key).destroyStored(key) } catch {
                try tolerate(error, about: key)
            }
        }
        try environment.storage.removeRecord(named: recordName)
    }

    /// Returns a sentence for each object that ``destroyAllStored(and:)`` would destroy outside this host's own store, for
    /// ``DeletionAnnouncing``. Asks for no PIN.
    ///
    /// - Throws: As ``KeyStore/announceDestruction(of:)``; `storeReadFailed` for a record that a newer version has
    ///   written.
    public func announceDestruction(
        and current: KeyReference?
    ) async throws(ProviderError) -> [String] {
        let keys = try await environment.executor.run { () throws(ProviderError) in
            try all(and: current, warns: false)
        }
        var sentences: [String] = []
        for key in keys { sentences += try await store(of: key).announceDestruction(of: key) }
        return sentences
    }

    /// Shuts the key stores down (``KeyStore/shutdown()``).
    public func shutdown() async { await stores.shutdown() }

    /// Returns the key store of a key. Blocks where a plugin is asked.
    ///
    /// - Throws: `configurationInvalid` for a URI that no installed store knows, or that its store cannot read.
    public func store(of key: KeyReference) throws(ProviderError) -> any KeyStore {
        try stores.store(of: key)
    }

    /// The key store of a key, for tasks: a plugin may be asked, which blocks.
    private func store(of key: KeyReference) async throws(ProviderError) -> any KeyStore {
        try await environment.executor.run { () throws(ProviderError) in try stores.store(of: key) }
    }

    private func tolerate(
        _ error: ProviderError, about key: KeyReference
    ) throws(ProviderError) {
        if stores.isConfigured(key) { throw error }
        environment.logger.warning(
            "a key is left in a key store that cannot be used",
            metadata: ["key": "\(key.uri.withVisibleControls)", "reason": "\(error)"])
    }

    // MARK: - The record

    /// `{"version":1,"keys":[…]}`, with a ``KeyReference`` for each key. No record without a key.
    private struct Contents: Codable {
        static let format = VersionedRecord<Self>(
            of: "the provider's keys", ifDamaged: "delete the identity to discard it")
        var keys: [KeyReference]
    }

    /// Returns all keys to delete, those that are not in use first.
    private func all(
        and current: KeyReference?, warns: Bool
    ) throws(ProviderError) -> [KeyReference] {
        var keys: [KeyReference] = []
        try environment.toleratingDamage(warns: warns) { () throws(ProviderError) in
            keys = try recorded()
        }
        guard let current else { return keys }
        return keys.filter { !$0.isSame(as: current) } + [current]
    }

    private func change(_ change: (inout [KeyReference]) -> Void) throws(ProviderError) {
        try environment.storage.updateRecord(named: recordName) { record throws(ProviderError) in
            var keys = try Self.named(in: record)
            change(&keys)
            return keys.isEmpty ? SecretBytes(copying: []) : try Contents.format.record(of: Contents(keys: keys))
        }
    }

    private static func named(in record: SecretBytes?) throws(ProviderError) -> [KeyReference] {
        try record.map { record throws(ProviderError) in try Contents.format.content(of: record).keys } ?? []
    }
}

extension KeyReference {
    fileprivate func isSame(as other: KeyReference) -> Bool { publicKey == other.publicKey }
}

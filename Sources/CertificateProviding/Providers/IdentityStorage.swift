import Crypto

/// One provider's part of the identity store: named entries and records that persist after the process ends.
///
/// The calls read and write small local files: they block for a short, bounded time and may be made from any thread.
/// Every write is atomic, across a crash and between processes. The name of an entry has 1 to 128 bytes, contains no
/// `/` or NUL, and does not begin with a dot. While other processes write, a write waits; after ten seconds it throws
/// `operationNotAllowed` with the reason ``ProviderError/Reason/busy``.
public protocol IdentityStorage: Sendable {
    /// Returns the entry, or `nil` if there is none.
    /// - Throws: `storeReadFailed` for an entry that cannot be read, with ``ProviderError/Reason/damaged`` as the reason if it is
    ///   damaged; errors of the source of the sealing key, such as `vaultLocked`.
    func entry(named name: String) throws(ProviderError) -> StoredIdentity?

    /// Replaces the entry. The chain must not be empty, and an attribute's name must not contain a NUL.
    /// - Throws: `storeWriteFailed`; errors of the source of the sealing key, such as `storeReadFailed` for a lost key.
    ///   The old entry is then unchanged.
    func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError)

    /// Removes the entry. Succeeds if there is none.
    /// - Throws: `deleteFailed`.
    func removeEntry(named name: String) throws(ProviderError)

    /// The part that all configurations of the provider have in common, for records that must not depend on a parameter: a password
    /// that was rejected must not be sent again because another parameter has changed. By default the storage itself. The provider
    /// of a plugin has a storage of its own for each configuration.
    var shared: any IdentityStorage { get }

    /// Returns the names of all entries, in alphabetical order. Reads none of them.
    /// - Throws: `storeReadFailed`; errors of a vault, such as `vaultLocked`.
    func entryNames() throws(ProviderError) -> [String]

    /// Returns the names of all records, in alphabetical order. Reads none of them.
    /// - Throws: `storeReadFailed`; errors of a vault, such as `vaultLocked`.
    func recordNames() throws(ProviderError) -> [String]

    /// Returns a record: data that a provider stores beside its identities, such as the PINs that a token has rejected.
    /// `nil` if there is none. Records and entries have separate names.
    /// - Throws: `storeReadFailed` for a record that cannot be read, as for ``entry(named:)``.
    func record(named name: String) throws(ProviderError) -> SecretBytes?

    /// Replaces a record by the result of `change`. No other process or thread can change it in between.
    ///
    /// - Parameter change: Gets the record, or `nil` if there is none; returns the new one, an empty one to remove the
    ///   record, or `nil` for no change. Called at most once, and must not use the storage.
    /// - Throws: `storeReadFailed`, `storeWriteFailed`, and errors of `change`. The old record is then unchanged; only one that was to
    ///   be removed may be gone, and may be restored by a power failure.
    func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError)

    /// Removes a record without reading it, so also one that is damaged. Succeeds if there is none.
    /// - Throws: `storeReadFailed` for a record that a newer version has written; `storeWriteFailed`: the record is then
    ///   unchanged, or gone, and may be restored by a power failure.
    func removeRecord(named name: String) throws(ProviderError)

    /// Takes the lease of a record, for work that takes longer than one change. Returns `nil` while another process or
    /// thread holds it. The lease is advisory: other users can still read and change the record.
    /// - Throws: `storeWriteFailed` if the lease cannot be taken.
    func leaseRecord(named name: String) throws(ProviderError) -> RecordLease?

    /// The paths of the directories that may have the entries: their time changes with each entry, so that a service sees there what
    /// another process has stored. Empty for a storage without any. Does not block.
    var entryDirectories: [String] { get }
}

extension IdentityStorage {
    /// The storage itself: the default for a provider whose names differ by its parameters
    /// (``StoredIdentity/name(distinguishedBy:)``).
    public var shared: any IdentityStorage { self }

    /// No directory: the default.
    public var entryDirectories: [String] { [] }

    /// Updates the record with an empty one.
    public func removeRecord(named name: String) throws(ProviderError) {
        try updateRecord(named: name) { _ in SecretBytes(copying: []) }
    }
}

/// An identity in the store.
public struct StoredIdentity: Sendable {
    /// DER, leaf first.
    public var certificateChain: [X509Certificate]
    /// PKCS#8; `nil` if the key is elsewhere, such as in a token.
    public var privateKey: SecretBytes?
    /// The CA certificates that came with the identity; `nil` if there are none.
    public var trust: TrustBundle?
    /// Additional data of the provider, such as the state of the file that the identity came from. Not secret.
    public var attributes: [String: String]

    /// Creates a stored identity.
    public init(
        certificateChain: [X509Certificate], privateKey: SecretBytes?, trust: TrustBundle? = nil,
        attributes: [String: String] = [:]
    ) {
        self.certificateChain = certificateChain
        self.privateKey = privateKey
        self.trust = trust
        self.attributes = attributes
    }
}

extension StoredIdentity {
    private static let keyAttribute = "key"

    /// Creates a stored identity whose key is in a key store. Its URI becomes the attribute `key`.
    public init(
        certificateChain: [X509Certificate], key: KeyReference, trust: TrustBundle? = nil,
        attributes: [String: String] = [:]
    ) {
        self.init(
            certificateChain: certificateChain, privateKey: nil, trust: trust,
            attributes: attributes.merging([Self.keyAttribute: key.uri]) { $1 })
    }

    /// The key of an identity whose key is in a key store; `nil` for another one.
    public var key: KeyReference? {
        guard privateKey == nil, let uri = attributes[Self.keyAttribute], let leaf = certificateChain.first else {
            return nil
        }
        return KeyReference(publicKey: leaf.publicKey, uri: uri)
    }

    /// Returns a name for an entry or a record: of 32 characters, and another one for other properties.
    ///
    /// - Parameter properties: Those that make an identity another one, such as the server and the subject.
    public static func name(distinguishedBy properties: [String]) -> String {
        String(Array(SHA256.hash(data: Array(properties.joined(separator: "\0").utf8))).hexEncoded.prefix(32))
    }
}

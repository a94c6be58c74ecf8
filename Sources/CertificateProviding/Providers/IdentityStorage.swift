/// A provider's own part of the identity store: named entries that outlive the process.
///
/// The calls read and write small local files: they block for a short, bounded time and may be made from any thread.
/// Every write is whole or not at all, across a crash and between processes. The name of an entry has 1 to 128 bytes,
/// no `/` or NUL, and does not begin with a dot.
public protocol IdentityStorage: Sendable {
    /// Returns the entry, or `nil` when there is none.
    /// - Throws: `storeReadFailed` when there is one that cannot be read, or what the home of the key says that it is
    ///   sealed with, such as `vaultLocked`.
    func entry(named name: String) throws(CertificateProviderError) -> StoredIdentity?

    /// Returns a value that changes whenever the entry does, or `nil` when there is none: what a cached entry is
    /// checked against. Much cheaper than reading.
    func version(ofEntryNamed name: String) throws(CertificateProviderError) -> EntryVersion?

    /// Replaces the entry. The chain must not be empty, and the name of an attribute has no NUL.
    /// - Throws: `storeWriteFailed`, or what the home of the sealing key says, such as `storeReadFailed` for one that
    ///   is lost; the old entry is then still there.
    func setEntry(_ identity: StoredIdentity, named name: String) throws(CertificateProviderError)

    /// Removes the entry. Succeeds when there is none.
    /// - Throws: `deleteFailed`.
    func removeEntry(named name: String) throws(CertificateProviderError)

    /// Returns what the provider has to remember beside its identities, such as the PINs that a token has rejected, or
    /// `nil` when there is nothing under that name. Records and entries do not share their names.
    /// - Throws: `storeReadFailed` when there is something that cannot be read.
    func record(named name: String) throws(CertificateProviderError) -> SecretBytes?

    /// Replaces a record by what `change` makes of it. No other process and no other thread changes it in between.
    ///
    /// - Parameter change: Gets the record, or `nil` when there is none; returns the new one, or `nil` to leave
    ///   everything as it is. Called once at most, and must not use the storage.
    /// - Throws: `storeReadFailed` or `storeWriteFailed`, and what `change` throws; the old record is then still there.
    func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(CertificateProviderError) -> SecretBytes?
    ) throws(CertificateProviderError)

    /// Claims a record for something that takes longer than a change, such as a try of what it says, or returns `nil`
    /// while another process or another thread has it. Claims bind those who ask for them; the record can be read and
    /// changed by everybody.
    /// - Throws: `storeWriteFailed` where nothing can be claimed.
    func leaseRecord(named name: String) throws(CertificateProviderError) -> RecordLease?
}

/// An identity at rest.
public struct StoredIdentity: Sendable {
    /// DER, leaf first.
    public var certificateChain: [X509Certificate]
    /// PKCS#8; `nil` when the key rests elsewhere, such as in a token.
    public var privateKey: SecretBytes?
    /// What the provider wants to know again, such as the state of the file that the identity came from. Not secret.
    public var attributes: [String: String]

    public init(
        certificateChain: [X509Certificate], privateKey: SecretBytes?, attributes: [String: String] = [:]
    ) {
        self.certificateChain = certificateChain
        self.privateKey = privateKey
        self.attributes = attributes
    }
}

/// See ``IdentityStorage/version(ofEntryNamed:)``. Only equality means anything.
public struct EntryVersion: Sendable, Hashable {
    private let words: SIMD8<Int64>
    public init(_ words: SIMD8<Int64>) { self.words = words }
}

public import CertificateProviding

/// Storage that does with another one what a test wants, and passes on everything else.
public protocol StorageWrapper: IdentityStorage {
    var wrapped: any IdentityStorage { get }
}

extension StorageWrapper {
    public func entry(named name: String) throws(ProviderError) -> StoredIdentity? {
        try wrapped.entry(named: name)
    }

    public func entryNames() throws(ProviderError) -> [String] { try wrapped.entryNames() }
    public func recordNames() throws(ProviderError) -> [String] { try wrapped.recordNames() }

    public func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) {
        try wrapped.setEntry(identity, named: name)
    }

    public func removeEntry(named name: String) throws(ProviderError) {
        try wrapped.removeEntry(named: name)
    }

    public func record(named name: String) throws(ProviderError) -> SecretBytes? {
        try wrapped.record(named: name)
    }

    public func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) { try wrapped.updateRecord(named: name, change) }

    public func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? {
        try wrapped.leaseRecord(named: name)
    }
}

public import CertificateProviding

/// Storage in which a test runs something at each call: it may throw what the call is to fail with.
public struct HookedStorage: StorageWrapper {
    public enum Call: Sendable {
        case entry, setEntry(StoredIdentity), record, updateRecord
        /// A record was updated, or left as it was.
        case updatedRecord(isChanged: Bool)
    }
    public typealias Hook = @Sendable (Call, _ name: String) throws(ProviderError) -> Void

    public let wrapped: any IdentityStorage
    private let hook: Hook

    public init(_ storage: any IdentityStorage = InMemoryStorage(), _ hook: @escaping Hook) {
        (wrapped, self.hook) = (storage, hook)
    }

    public func entry(named name: String) throws(ProviderError) -> StoredIdentity? {
        try hook(.entry, name)
        return try wrapped.entry(named: name)
    }

    public func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) {
        try hook(.setEntry(identity), name)
        try wrapped.setEntry(identity, named: name)
    }

    public func record(named name: String) throws(ProviderError) -> SecretBytes? {
        try hook(.record, name)
        return try wrapped.record(named: name)
    }

    public func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) {
        try hook(.updateRecord, name)
        var isChanged = false
        try wrapped.updateRecord(named: name) { content throws(ProviderError) in
            let new = try change(content)
            isChanged = new != nil
            return new
        }
        try hook(.updatedRecord(isChanged: isChanged), name)
    }
}

public import CertificateProviding
public import Contracts

/// A step of a storage: called before and after each change that it makes. What it throws, the storage throws.
public typealias StorageStep = @Sendable (_ name: String) throws(ProviderError) -> Void

/// Records with steps.
public struct SteppedStorage: IdentityStorage {
    private let storage: any IdentityStorage
    private let step: StorageStep

    public init(_ storage: any IdentityStorage, _ step: @escaping StorageStep) {
        (self.storage, self.step) = (storage, step)
    }

    public func entry(named name: String) throws(ProviderError) -> StoredIdentity? {
        try storage.entry(named: name)
    }
    public func setEntry(_ identity: StoredIdentity, named name: String) throws(ProviderError) {
        try storage.setEntry(identity, named: name)
    }
    public func removeEntry(named name: String) throws(ProviderError) {
        try storage.removeEntry(named: name)
    }
    public func entryNames() throws(ProviderError) -> [String] { try storage.entryNames() }
    public func recordNames() throws(ProviderError) -> [String] { try storage.recordNames() }
    public func record(named name: String) throws(ProviderError) -> SecretBytes? {
        try storage.record(named: name)
    }
    public func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) {
        try step("before the record")
        try storage.updateRecord(named: name) { record throws(ProviderError) in
            let new = try change(record)
            try step("in the record's change")
            return new
        }
        try step("after the record")
    }
    public func removeRecord(named name: String) throws(ProviderError) {
        try step("before the record is removed")
        try storage.removeRecord(named: name)
        try step("after the record is removed")
    }
    public func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? {
        try storage.leaseRecord(named: name)
    }
}

/// Documents with steps.
public struct SteppedDocuments: DocumentKeeping {
    private let documents: any DocumentKeeping
    private let step: StorageStep

    public init(_ documents: any DocumentKeeping, _ step: @escaping StorageStep) {
        (self.documents, self.step) = (documents, step)
    }

    public func write(_ content: [UInt8]) throws(ProviderError) -> DocumentReference {
        try step("before a document")
        let document = try documents.write(content)
        try step("after a document")
        return document
    }
    public func read(_ document: DocumentReference) throws(ProviderError) -> [UInt8] {
        try documents.read(document)
    }
    public func contains(_ document: DocumentReference) throws(ProviderError) -> Bool {
        try documents.contains(document)
    }
    public func remove(sha256 digest: String) throws(ProviderError) {
        try step("before a document is removed")
        try documents.remove(sha256: digest)
        try step("after a document is removed")
    }
    public func all() throws(ProviderError) -> [String] { try documents.all() }
    public func path(of document: DocumentReference) -> String { documents.path(of: document) }
    public func whileKept<R>(
        _ body: () throws(ProviderError) -> R
    ) throws(ProviderError) -> R { try documents.whileKept(body) }
    public func whileAlone<R>(
        _ body: () throws(ProviderError) -> R
    ) throws(ProviderError) -> R? { try documents.whileAlone(body) }
}

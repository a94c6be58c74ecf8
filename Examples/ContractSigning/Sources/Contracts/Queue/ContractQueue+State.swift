public import CertificateProviding
import Glibc

extension ContractQueue {
    private static let stateRecord = "state"

    /// The state as it is stored.
    private struct StateRecord: Codable {
        static let format = VersionedRecord<Self>(named: stateRecord)
        var state: QueueState
    }

    // MARK: - State

    /// Returns what the queue knows beside its contracts.
    public func state() throws(ProviderError) -> QueueState {
        try Self.state(of: try storage.record(named: Self.stateRecord))
    }

    /// Changes it. No other process or thread can change it in between.
    ///
    /// - Parameter body: Makes the change; must not use the queue.
    /// - Returns: The state as it is now.
    @discardableResult public func changeState(
        _ body: (inout QueueState) throws(ProviderError) -> Void
    ) throws(ProviderError) -> QueueState {
        var new = QueueState()
        try storage.updateRecord(named: Self.stateRecord) { record throws(ProviderError) in
            let old = try Self.state(of: record)
            new = old
            try body(&new)
            return new == old ? nil : try StateRecord.format.record(of: StateRecord(state: new))
        }
        return new
    }

    private static func state(of record: SecretBytes?) throws(ProviderError) -> QueueState {
        guard let record else { return QueueState() }
        return try StateRecord.format.content(of: record).state
    }

    // MARK: - Leases

    /// Takes a contract for work that takes long, such as a signature; `nil` while another process or thread has it.
    public func lease(_ id: String) throws(ProviderError) -> RecordLease? {
        try storage.leaseRecord(named: try name(of: id))
    }

    /// Takes the synchronisation; `nil` while another process or thread has it.
    public func leaseSynchronisation() throws(ProviderError) -> RecordLease? {
        try storage.leaseRecord(named: Self.stateRecord)
    }

    // MARK: - Removing

    /// Removes documents that no contract names.
    ///
    /// - Returns: Whether that was done: it is not while another process or thread uses the queue.
    /// - Throws: For a contract that cannot be read: which documents it names is not known. Nothing is removed then.
    @discardableResult public func removeUnreferenced() throws(ProviderError) -> Bool {
        let isDone = try documents.whileAlone { () throws(ProviderError) in
            var named: Set<String> = []
            for id in try ids() {
                guard let record = try storage.record(named: try name(of: id)) else { continue }
                named.formUnion(try self.record(id, record).documents.map(\.sha256))
            }
            for digest in try documents.all() where !named.contains(digest) { try documents.remove(sha256: digest) }
            return true
        }
        return isDone ?? false
    }

    /// Removes everything.
    ///
    /// - Parameter evenUnsent: Whether signatures that the server does not have, and what cannot be read, are removed too.
    /// - Throws: `operationNotAllowed` for a contract with such a signature; with the reason `busy` if another process uses the queue for long: its documents are still there then.
    public func removeAll(evenUnsent: Bool = true) throws(ProviderError) {
        for id in try ids() { try remove(id, evenUnsent: evenUnsent) }
        try storage.removeRecord(named: Self.stateRecord)
        let end = ContinuousClock.now + .seconds(10)
        while try !removeUnreferenced() {
            guard ContinuousClock.now < end else {
                throw ProviderError(
                    .operationNotAllowed,
                    "The contracts are removed, but their documents are not: another process uses them. Try again when it is done.",
                    reason: .busy)
            }
            usleep(5000)
        }
    }
}

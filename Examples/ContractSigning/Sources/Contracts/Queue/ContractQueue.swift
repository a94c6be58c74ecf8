public import CertificateProviding
public import FoundationEssentials

/// The contracts of this host, on its disk.
///
/// Each contract is a sealed record of the identity store, and its documents are files by their digests. Each change is whole or not
/// made at all, across kills, full disks and other processes. The calls block for a short time, and may be made from any thread.
///
/// Errors: `storeReadFailed`, with the reason `damaged` for a record or a document that is; `storeWriteFailed`; those of the
/// identity store, such as `vaultLocked`, and `operationNotAllowed` with the reason `busy` while other processes write for long.
public struct ContractQueue: Sendable {
    let storage: any IdentityStorage
    let documents: any DocumentKeeping
    private let clock: @Sendable () -> Date

    /// - Parameters:
    ///   - storage: The part of the identity store that is the application's.
    ///   - now: The time.
    public init(
        storage: any IdentityStorage, documents: any DocumentKeeping, now: @escaping @Sendable () -> Date = { Date() }
    ) {
        (self.storage, self.documents, clock) = (storage, documents, now)
    }

    /// The time.
    public func now() -> Date { clock() }

    // MARK: - Reading

    /// Returns all contracts, the oldest first.
    ///
    /// - Throws: Also for one contract that is damaged: see ``entries()``.
    public func list() throws(ProviderError) -> [Contract] {
        var contracts: [Contract] = []
        for entry in try entries() { contracts.append(try entry.contract.get()) }
        return contracts
    }

    /// A contract of the queue, or why it cannot be read.
    public struct Entry: Sendable {
        public let id: String
        public let contract: Result<Contract, ProviderError>
    }

    /// Returns all contracts, the oldest first, and after them those that are damaged.
    public func entries() throws(ProviderError) -> [Entry] {
        try documents.whileKept { () throws(ProviderError) in
            var entries: [Entry] = []
            for id in try ids() {
                var record: SecretBytes?
                do throws(ProviderError) { record = try storage.record(named: try name(of: id)) } catch {
                    // Another reason is that of the whole store.
                    guard error.reason == .damaged else { throw error }
                    entries.append(Entry(id: id, contract: .failure(error)))
                }
                // One that is gone meanwhile is left out.
                guard let record else { continue }
                do throws(ProviderError) {
                    entries.append(Entry(id: id, contract: .success(try decoded(id, record))))
                } catch {
                    guard error.code == .storeReadFailed || error.code == .malformedData else { throw error }
                    entries.append(Entry(id: id, contract: .failure(error)))
                }
            }
            return entries.sorted { one, other in
                let one = ((try? one.contract.get())?.received ?? .distantFuture, one.id)
                let other = ((try? other.contract.get())?.received ?? .distantFuture, other.id)
                return one < other
            }
        }
    }

    /// Returns a contract; `nil` if there is none.
    public func contract(_ id: String) throws(ProviderError) -> Contract? {
        try documents.whileKept { () throws(ProviderError) in try read(id) }
    }

    /// Returns the contract whose id begins with a text, or whose number in the caller's system, or whose customer's, is that.
    ///
    /// - Throws: `notFound`; `malformedData` for a text that several contracts have.
    public func find(_ text: String) throws(ProviderError) -> Contract {
        let (given, text) = (text, text.lowercased())
        var found: [Contract] = []
        var failure: ProviderError?
        for entry in try entries() {
            let isNamed = !text.isEmpty && entry.id.hasPrefix(text)
            switch entry.contract {
            case .success(let contract):
                if entry.id == text { return contract }
                let number = contract.content.contractID.map { "\($0)" }
                if isNamed || number == text || contract.content.customerNumber == given {
                    found.append(contract)
                }
            case .failure(let error): if isNamed { failure = error }
            }
        }
        guard found.count + (failure == nil ? 0 : 1) <= 1 else {
            throw ProviderError(
                .malformedData,
                "Several contracts are meant by \(DisplayText.visible(given)): \(found.map(\.id).joined(separator: ", ")). Give more of the id."
            )
        }
        if let failure { throw failure }
        guard let contract = found.first else {
            throw ProviderError(
                .notFound, "There is no contract \(DisplayText.visible(given)); see: contracts list.")
        }
        return contract
    }

    /// Returns the id of the contract that cannot be read and whose id begins with a text; `nil` if that is none, or several.
    public func unreadable(_ text: String) throws(ProviderError) -> String? {
        let named = try entries().filter { !text.isEmpty && $0.id.hasPrefix(text.lowercased()) }
        guard named.count == 1, case .failure = named[0].contract else { return nil }
        return named[0].id
    }

    /// Returns a document, whose digest has been verified.
    public func content(of document: DocumentReference) throws(ProviderError) -> [UInt8] {
        try documents.read(document)
    }

    /// Whether a document is here, and whole.
    public func hasContent(of document: DocumentReference) throws(ProviderError) -> Bool {
        do throws(ProviderError) {
            _ = try documents.read(document)
            return true
        } catch {
            guard error.reason == .damaged else { throw error }
            return false
        }
    }

    /// The file of a document, to be read only.
    public func path(of document: DocumentReference) -> String { documents.path(of: document) }

    // MARK: - Changing

    /// Adds the contract of a file, under a new id.
    @discardableResult public func add(_ file: ContractFile) throws(ProviderError) -> Contract {
        let version = ContractVersion(
            id: UUID().uuidString.lowercased(), state: file.content.missing.isEmpty ? .inProgress : .incomplete,
            content: file.content)
        let contract = Contract(version: version, received: now(), revision: nil, isUnsent: true)
        try put(contract, storing: Array(file.documents.values))
        return contract
    }

    /// Stores a contract, in the place of one with the same id.
    ///
    /// - Parameter contents: Documents that are stored first.
    public func put(_ contract: Contract, storing contents: [[UInt8]] = []) throws(ProviderError) {
        _ = try update(contract.id, storing: contents) { _ in contract }
    }

    /// Changes a contract. No other process or thread can change it in between.
    ///
    /// - Parameters:
    ///   - contents: Documents that are stored first.
    ///   - body: Makes the change; must not use the queue.
    /// - Returns: The contract as it is now.
    /// - Throws: `notFound`; errors of `body`, and nothing is changed then.
    @discardableResult public func change(
        _ id: String, storing contents: [[UInt8]] = [],
        _ body: (inout Contract) throws(ProviderError) -> Void
    ) throws(ProviderError) -> Contract {
        try update(id, storing: contents) { old throws(ProviderError) in
            guard var contract = old else {
                throw ProviderError(
                    .notFound, "There is no contract \(DisplayText.visible(id)); see: contracts list.")
            }
            try body(&contract)
            return contract
        }
    }

    /// Brings an event upon a contract.
    ///
    /// - Parameters:
    ///   - contents: Documents that are stored first.
    ///   - body: Makes what else changes with the state, such as the signature; it is called before, and must not use the queue.
    /// - Returns: The contract as it is now, and what follows.
    /// - Throws: `notFound`; `operationNotAllowed` in a state that does not permit the event; errors of `body`.
    @discardableResult public func event(
        _ event: ContractEvent, on id: String, storing contents: [[UInt8]] = [],
        _ body: (inout Contract) throws(ProviderError) -> Void = { _ in }
    ) throws(ProviderError) -> (Contract, [ContractEffect]) {
        var effects: [ContractEffect] = []
        let contract = try change(id, storing: contents) { contract throws(ProviderError) in
            let before = contract.state
            guard let after = before.after(event) else {
                throw ProviderError(
                    .operationNotAllowed,
                    "The contract \(id) is in the state \(before), which does not permit this; see: contracts show \(id)."
                )
            }
            try body(&contract)
            contract.version.state = after.state
            if after.effects.contains(.send) { contract.isUnsent = true }
            effects = after.effects
        }
        return (contract, effects)
    }

    /// Removes a contract; succeeds if there is none. Its documents go with the next ``removeUnreferenced()``.
    ///
    /// - Parameter evenUnsent: Whether a signature that the server has not confirmed may be lost, and what cannot be read.
    /// - Throws: `operationNotAllowed` for a contract with such a signature.
    public func remove(_ id: String, evenUnsent: Bool = false) throws(ProviderError) {
        try documents.whileKept { () throws(ProviderError) in
            guard !evenUnsent else { return try storage.removeRecord(named: try name(of: id)) }
            try storage.updateRecord(named: try name(of: id)) { record throws(ProviderError) in
                guard let record else { return nil }
                if try decoded(id, record).hasUnsentSignature {
                    throw ProviderError(
                        .operationNotAllowed,
                        "The contract \(id) has a signature that the server does not have; it was not removed. Run: contracts sync."
                    )
                }
                return SecretBytes(copying: [])
            }
        }
    }

    /// Stores a version of the server in the place of a contract that cannot be read.
    ///
    /// - Parameter contents: Documents that are stored first.
    /// - Returns: Whether it can be read now. It cannot where a signature may be lost that the server does not have.
    func repair(_ contract: Contract, storing contents: [[UInt8]]) throws(ProviderError) -> Bool {
        let (id, name) = (contract.id, try name(of: contract.id))
        return try documents.whileKept { () throws(ProviderError) in
            // Often the server has the very content that is damaged here.
            for content in contents + [contract.content.json.bytes] { try documents.write(content) }
            do throws(ProviderError) {
                if try read(id) != nil { return true }
            } catch {
                guard error.reason == .damaged else { throw error }
            }
            var isDone = false
            do throws(ProviderError) {
                try storage.updateRecord(named: name) { record throws(ProviderError) in
                    guard let record, try !self.record(id, record).hasUnsentSignature else { return nil }
                    isDone = true
                    return try store(contract)
                }
            } catch {
                guard error.reason == .damaged else { throw error }
            }
            return isDone
        }
    }

    private func update(
        _ id: String, storing contents: [[UInt8]],
        _ body: (Contract?) throws(ProviderError) -> Contract
    ) throws(ProviderError) -> Contract {
        let name = try name(of: id)
        return try documents.whileKept { () throws(ProviderError) in
            for content in contents { try documents.write(content) }
            var new: Contract?
            try storage.updateRecord(named: name) { record throws(ProviderError) in
                let old = try record.map { record throws(ProviderError) in try decoded(id, record) }
                let contract = try body(old)
                new = contract
                guard contract != old else { return nil }
                try contract.require(toFollow: old, id: id)
                return try store(contract)
            }
            guard let new else { throw ProviderError(.internal, "The identity store made no change.") }
            return new
        }
    }

    /// Stores the contents of a contract's versions, and returns its record.
    private func store(_ contract: Contract) throws(ProviderError) -> SecretBytes {
        var contents: [[UInt8]] = []
        let record = ContractRecord(contract, contents: &contents)
        for content in contents { try documents.write(content) }
        for document in record.documents where try !documents.contains(document) {
            throw ProviderError(
                .storeWriteFailed,
                "The contract \(contract.id) names the document \(document.sha256), which is not here; it was not stored."
            )
        }
        return try VersionedRecord(named: ContractRecord.prefix + contract.id).record(of: record)
    }

    // MARK: - Records

    func name(of id: String) throws(ProviderError) -> String {
        guard ContractVersion.isID(id) else {
            throw ProviderError(
                .notFound, "\(DisplayText.visible(id)) is no id of a contract; see: contracts list.")
        }
        return ContractRecord.prefix + id
    }

    /// The ids of all records.
    func ids() throws(ProviderError) -> [String] {
        try storage.recordNames().filter { $0.hasPrefix(ContractRecord.prefix) }
            .map { String($0.dropFirst(ContractRecord.prefix.count)) }.filter(ContractVersion.isID)
    }

    private func read(_ id: String) throws(ProviderError) -> Contract? {
        guard ContractVersion.isID(id), let record = try storage.record(named: try name(of: id)) else { return nil }
        return try decoded(id, record)
    }

    private func decoded(_ id: String, _ record: SecretBytes) throws(ProviderError) -> Contract {
        try self.record(id, record).contract(id, documents: documents)
    }

    func record(_ id: String, _ record: SecretBytes) throws(ProviderError) -> ContractRecord {
        try VersionedRecord<ContractRecord>(named: ContractRecord.prefix + id).content(of: record)
    }
}

extension Contract {
    /// Checks what holds for each change, whoever makes it.
    ///
    /// - Throws: `operationNotAllowed`.
    fileprivate func require(toFollow old: Contract?, id: String) throws(ProviderError) {
        var flaw: String?
        if self.id != id { flaw = "its id cannot be changed" }
        if let found = version.flaw { flaw = "\(found.member) \(found.problem)" }
        if let old, old.isSignatureUnsent, !approvals.starts(with: old.approvals), !superseded.contains(old.approvals) {
            flaw = "it has a signature that the server does not have"
        }
        guard let flaw else { return }
        throw ProviderError(.operationNotAllowed, "The contract \(id) is not changed: \(flaw).")
    }
}

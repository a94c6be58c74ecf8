import CertificateProviding
import Contracts
import Foundation
import GRDB

// What the back office does.

extension ContractBook {
    /// A contract as the back office sees it.
    struct OfficeContract: Sendable {
        var account: String
        var revision: Int
        var version: ContractVersion
        var isShared: Bool
        var changed: Date

        fileprivate init(_ row: ContractRow) throws {
            (account, revision, version) = (row.account, row.revision, try row.version())
            (isShared, changed) = (row.isShared, row.changed)
        }
    }

    /// Puts in a contract for an account. Hosts get it if `contract.keep_on_move` is true.
    func add(
        _ content: ContractContent, _ documents: [DocumentReference: [UInt8]], for account: String
    ) async throws -> OfficeContract {
        try Self.requireReadable(content)
        let now = now()
        return try await database.write { database in
            try Self.store(documents, for: account, at: now, in: database)
            let row = ContractRow(
                id: UUID().uuidString.lowercased(), account: account,
                revision: try Self.nextRevision(at: now, in: database),
                state: content.missing.isEmpty ? .inProgress : .incomplete, content: Data(content.json.bytes),
                approvals: [], isShared: content.isKeptOnMove, created: now, changed: now)
            try row.save(content.documents, in: database)
            return try OfficeContract(row)
        }
    }

    /// Puts another file in the place of a contract's, in the first two states. The same file changes nothing.
    ///
    /// - Throws: ``Refusal``: `notFound`, `wrongState`.
    func replace(
        _ id: String, _ content: ContractContent, _ documents: [DocumentReference: [UInt8]]
    ) async throws -> OfficeContract {
        try Self.requireReadable(content)
        let now = now()
        return try await database.write { database in
            var row = try Self.row(id, in: database)
            let state = try Self.state(after: .replaced(isComplete: content.missing.isEmpty), of: row)
            let json = Data(content.json.bytes)
            guard row.content != json || row.state != state else { return try OfficeContract(row) }
            guard row.approvals.isEmpty else {
                throw Refusal(
                    .wrongState,
                    "The contract \(id) has been signed by \(row.approvals.count) of its signatories: it cannot be replaced. Abandon it, and put in another one."
                )
            }
            try Self.store(documents, for: row.account, at: now, in: database)
            (row.content, row.original, row.state, row.changed) = (json, nil, state, now)
            row.isShared = row.isShared || content.isKeptOnMove
            row.revision = try Self.nextRevision(at: now, in: database)
            try row.save(content.documents, in: database)
            return try OfficeContract(row)
        }
    }

    /// Accepts a signature, archives, or gives up a contract. What has been done is done again without a change.
    ///
    /// - Throws: ``Refusal``: `notFound`, `wrongState`.
    func apply(_ event: ContractEvent, to id: String) async throws -> OfficeContract {
        let now = now()
        return try await database.write { database in
            var row = try Self.row(id, in: database)
            if row.state == Self.result(of: event) { return try OfficeContract(row) }
            (row.state, row.changed) = (try Self.state(after: event, of: row), now)
            row.revision = try Self.nextRevision(at: now, in: database)
            try row.update(database)
            return try OfficeContract(row)
        }
    }

    /// Deletes a contract in any state. Its id is not taken again. The hosts of the account have to synchronise anew.
    ///
    /// - Returns: The account.
    /// - Throws: ``Refusal``: `notFound`.
    @discardableResult
    func delete(_ id: String) async throws -> String {
        let now = now()
        return try await database.write { database in
            let row = try Self.row(id, in: database)
            _ = try row.delete(database)
            try database.execute(sql: "INSERT OR IGNORE INTO deleted (contract) VALUES (?)", arguments: [id])
            try database.execute(sql: "DELETE FROM code WHERE contract = ?", arguments: [id])
            if row.isShared { try Self.forgetCursors(of: row.account, at: now, in: database) }
            return row.account
        }
    }

    /// - Throws: ``Refusal``: `notFound`.
    func contract(_ id: String) async throws -> OfficeContract {
        try await database.read { try OfficeContract(Self.row(id, in: $0)) }
    }

    /// The last changed first.
    func list(before revision: Int? = nil, limit: Int) async throws -> (contracts: [OfficeContract], total: Int) {
        try await database.read { database in
            var request = ContractRow.order(ContractRow.Columns.revision.desc).limit(limit)
            if let revision { request = request.filter(ContractRow.Columns.revision < revision) }
            return (
                try request.fetchAll(database).map(OfficeContract.init), try ContractRow.fetchCount(database)
            )
        }
    }

    /// Returns the contents of documents of an account.
    ///
    /// - Throws: ``Refusal``: `notFound`.
    func documents(
        _ references: [DocumentReference], of account: String
    ) async throws -> [DocumentReference: [UInt8]] {
        try await database.read { database in
            var documents: [DocumentReference: [UInt8]] = [:]
            for reference in references where documents[reference] == nil {
                guard let content = try Self.document(reference.sha256, of: account, in: database) else {
                    throw Refusal(.notFound, "The document \(reference.sha256) is not there.")
                }
                documents[reference] = content
            }
            return documents
        }
    }

    private static func row(_ id: String, in database: Database) throws -> ContractRow {
        guard let row = try ContractRow.fetchOne(database, key: id) else {
            throw Refusal(.notFound, "There is no contract \(DisplayText.visible(id)).")
        }
        return row
    }

    private static func store(
        _ documents: [DocumentReference: [UInt8]], for account: String, at now: Date, in database: Database
    ) throws {
        for (reference, content) in documents {
            _ = try store(content, reference, for: account, at: now, in: database)
        }
    }

    private static func state(after event: ContractEvent, of row: ContractRow) throws(Refusal) -> ContractState {
        guard let next = row.state.after(event) else {
            throw Refusal(
                .wrongState, "The contract \(row.id) is \(row.state): it cannot be \(name(of: event)) in this state.")
        }
        return next.state
    }

    private static func name(of event: ContractEvent) -> String {
        switch event {
        case .filled: "filled in"
        case .signed: "signed"
        case .abandoned: "abandoned"
        case .replaced: "replaced"
        case .validated: "validated"
        case .archived: "archived"
        }
    }

    private static func result(of event: ContractEvent) -> ContractState? {
        switch event {
        case .validated: .validated
        case .archived: .archived
        case .abandoned: .abandoned
        case .filled, .signed, .replaced: nil
        }
    }
}

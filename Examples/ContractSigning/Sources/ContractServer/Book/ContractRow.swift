import CertificateProviding
import Contracts
import Foundation
import GRDB

/// A contract as the database has it.
struct ContractRow: Codable, Sendable, FetchableRecord, PersistableRecord {
    static let databaseTableName = "contract"

    let id: String
    let account: String
    /// Is given anew with each change, and never twice, also after a database was restored.
    var revision: Int
    var state: ContractState
    var content: Data
    var approvals: [ContractApproval]
    var abandonment: ContractAbandonment?
    /// Whether the hosts of the account get it. Once they do, they go on doing so: a host may have it by then.
    var isShared: Bool
    let created: Date
    var changed: Date
    /// What came first, or from the back office, where a host has filled in something since.
    var original: Data?

    enum Columns {
        static let account = Column("account")
        static let revision = Column("revision")
        static let isShared = Column("isShared")
    }

    func version() throws -> ContractVersion {
        ContractVersion(
            id: id, state: state, content: try ContractContent(JSONValue(parsing: Array(content))),
            approvals: approvals, abandonment: abandonment)
    }

    /// Whether a host may have filled in this content, and changed nothing else.
    func mayBecome(_ content: ContractContent) throws -> Bool {
        let original = original ?? self.content
        return try original == Data(content.json.bytes)
            || ContractContent(JSONValue(parsing: Array(original))).isFilled(in: content)
    }

    func isSame(as version: ContractVersion) -> Bool {
        state == version.state && approvals == version.approvals && abandonment == version.abandonment
            && content == Data(version.content.json.bytes)
    }

    /// Writes the row, and which documents it has.
    func save(_ documents: [DocumentReference], in database: Database) throws {
        try save(database)
        try database.execute(sql: "DELETE FROM reference WHERE contract = ?", arguments: [id])
        for digest in Set(documents.map(\.sha256)) {
            try database.execute(
                sql: "INSERT INTO reference (contract, sha256) VALUES (?, ?)", arguments: [id, digest])
        }
    }
}

import CertificateProviding
import Contracts
import Crypto
import Foundation
import GRDB

/// The contracts and documents of all accounts. Each method is one transaction, and knows nothing of HTTP.
struct ContractBook: Sendable {
    /// Of one document: what all of a contract may have, and a signature.
    static let maximumDocumentSize = ContractVersion.maximumDocument
    /// Of the contracts in one answer of ``changes(of:after:limit:)``, in bytes, if there is more than one. A host reads so many values as
    /// a text may have, too.
    static let maximumPageSize = 4_000_000

    let database: any DatabaseWriter
    /// Of the hashes of codes. It is not in the database.
    let codeKey: SymmetricKey
    let evidence: any EvidenceChecking
    let now: @Sendable () -> Date
    /// Names cursors. It is another one after each start, and so after a backup was restored: then a host synchronises all.
    private let start = UUID()

    /// - Parameter database: `nil` for one in memory.
    init(
        _ database: ServerDatabase? = nil, codeKey: SymmetricKey = SymmetricKey(size: .bits256),
        evidence: any EvidenceChecking = EvidenceCheck(), now: @escaping @Sendable () -> Date = { Date() }
    ) throws {
        self.database = try (database ?? ServerDatabase()).writer
        (self.codeKey, self.evidence, self.now) = (codeKey, evidence, now)
    }

    // MARK: Documents

    /// Returns the size of a document of the account; `nil` if it has none with this digest.
    func sizeOfDocument(_ digest: String, of account: String) async throws -> Int? {
        let now = now()
        return try await database.write { database in
            // A host that asks is about to send a contract with it.
            try database.execute(
                sql: "UPDATE document SET seen = ? WHERE account = ? AND sha256 = ?",
                arguments: [now, account, digest])
            return try Int.fetchOne(
                database, sql: "SELECT size FROM document WHERE account = ? AND sha256 = ?",
                arguments: [account, digest])
        }
    }

    /// Returns the content of a document of the account; `nil` if it has none with this digest.
    func document(_ digest: String, of account: String) async throws -> [UInt8]? {
        try await database.read { try Self.document(digest, of: account, in: $0) }
    }

    static func document(_ digest: String, of account: String, in database: Database) throws -> [UInt8]? {
        try Data.fetchOne(
            database, sql: "SELECT content FROM document WHERE account = ? AND sha256 = ?",
            arguments: [account, digest]
        ).map { Array($0) }
    }

    /// Stores a document for the account.
    ///
    /// - Returns: Whether it is new.
    @discardableResult
    func putDocument(_ content: [UInt8], for account: String) async throws -> Bool {
        guard content.count <= Self.maximumDocumentSize else {
            throw Refusal(.tooLarge, "The document is larger than \(Self.maximumDocumentSize) bytes.")
        }
        let (reference, now) = (DocumentReference(of: content), now())
        return try await database.write { database in
            try Self.store(content, reference, for: account, at: now, in: database)
        }
    }

    static func store(
        _ content: [UInt8], _ reference: DocumentReference, for account: String, at now: Date, in database: Database
    ) throws -> Bool {
        try database.execute(
            sql: "UPDATE document SET seen = ? WHERE account = ? AND sha256 = ?",
            arguments: [now, account, reference.sha256])
        guard database.changesCount == 0 else { return false }
        try database.execute(
            sql: "INSERT INTO document (account, sha256, size, seen, content) VALUES (?, ?, ?, ?, ?)",
            arguments: [account, reference.sha256, reference.size, now, Data(content)])
        return true
    }

    /// Removes documents that no contract has, and that no host has sent or asked for since a time.
    func removeUnreferencedDocuments(unseenSince time: Date) async throws {
        try await database.write { database in
            try database.execute(
                sql: """
                    DELETE FROM document WHERE seen < ? AND NOT EXISTS (
                        SELECT 1 FROM reference JOIN contract ON contract.id = reference.contract
                        WHERE contract.account = document.account AND reference.sha256 = document.sha256)
                    """, arguments: [time])
        }
    }

    // MARK: Changes

    /// Returns what has changed for the hosts of an account, the oldest change first; `nil` if the cursor is forgotten.
    ///
    /// - Parameter cursor: `nil` for all contracts.
    func changes(of account: String, after cursor: String?, limit: Int) async throws -> ContractChanges? {
        try await database.read { database in
            let last = try Int.fetchOne(database, sql: "SELECT revision FROM book") ?? 0
            // A cursor from before the last deletion is forgotten. One from the middle of the list since then is not, whatever
            // revision it is at.
            let name = "\(start) \(account) \(try Self.forgotten(account, in: database))"
            var position = 0
            if let cursor {
                guard let revision = Self.revision(ofCursor: cursor, name), revision <= last else { return nil }
                position = revision
            }
            let rows =
                try ContractRow
                .filter(ContractRow.Columns.account == account && ContractRow.Columns.isShared)
                .filter(ContractRow.Columns.revision > position)
                .order(ContractRow.Columns.revision).limit(max(1, limit) + 1).fetchAll(database)
            var contracts: [ServerContract] = []
            var (size, values) = (0, 0)
            for row in rows.prefix(max(1, limit)) {
                let version = try row.version()
                size += row.content.count + row.approvals.count * ContractApproval.maximumSize.bytes
                values += version.content.json.count + ContractVersion.maximumEnvelope.values
                guard contracts.isEmpty || size <= Self.maximumPageSize && values <= JSONValue.maximumValues else {
                    break
                }
                contracts.append(ServerContract(revision: row.revision, version: version))
            }
            let hasMore = contracts.count < rows.count
            let next = hasMore ? contracts.last?.revision ?? position : last
            return ContractChanges(
                account: account, cursor: Self.cursor(next, name), hasMore: hasMore,
                contracts: contracts)
        }
    }

    /// The cursor names the start, the account and its last deletion, so that one of another database or account is a forgotten one.
    private static func cursor(_ revision: Int, _ name: String) -> String {
        let name = SHA256.hash(data: Data(name.utf8)).prefix(8)
        return "\(DisplayText.hexadecimal(name))-\(revision)"
    }

    private static func revision(ofCursor cursor: String, _ name: String) -> Int? {
        guard let text = cursor.split(separator: "-", maxSplits: 1, omittingEmptySubsequences: false).last,
            let revision = Int(text), revision >= 0, cursor == Self.cursor(revision, name)
        else { return nil }
        return revision
    }

    private static func forgotten(_ account: String, in database: Database) throws -> Int {
        try Int.fetchOne(
            database, sql: "SELECT revision FROM forgotten WHERE account = ?", arguments: [account]) ?? 0
    }

    /// Returns the next revision: the time, in milliseconds, or the last one and 1. A restored backup gives none again.
    static func nextRevision(at now: Date, in database: Database) throws -> Int {
        let time = Int(now.timeIntervalSince1970 * 1000)
        try database.execute(sql: "UPDATE book SET revision = max(revision + 1, ?)", arguments: [time])
        return try Int.fetchOne(database, sql: "SELECT revision FROM book") ?? time
    }

    /// Has all hosts of the account synchronise anew. They learn so that a contract is gone.
    static func forgetCursors(of account: String, at now: Date, in database: Database) throws {
        try database.execute(
            sql: "INSERT OR REPLACE INTO forgotten (account, revision) VALUES (?, ?)",
            arguments: [account, try nextRevision(at: now, in: database)])
    }
}

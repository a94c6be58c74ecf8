import CertificateProviding
import Contracts
import Foundation
import GRDB

// What hosts send.

extension ContractBook {
    /// What a host gets for a version.
    struct PutAnswer: Equatable, Sendable {
        var outcome: PutOutcome
        /// Whether the contract is new to the server.
        var isNew = false
    }

    /// Stores a version that a host of the account sends, after its documents.
    ///
    /// - Parameter revision: The revision that the version stands on; `nil` for a contract that is new.
    /// - Throws: ``Refusal`` for a version that is not whole, naming the member.
    func put(
        _ version: ContractVersion, of account: String, after revision: Int?
    ) async throws -> PutAnswer {
        if let flaw = version.flaw { throw Refusal.invalid(flaw.member, flaw.problem) }
        try Self.requireReadable(version.content)
        let accepted: Int
        switch try await database.read({ database in
            try Self.verdict(version, of: account, after: revision, in: database)
        }) {
        case .answer(let answer): return answer
        case .store(let row): accepted = row?.approvals.count ?? 0
        }
        try requireCodes(for: version, of: account)
        // Outside the transaction: it reads whole documents, and verifies a signature.
        let documents = try await documents(version.content.documents, of: account)
        do throws(ProviderError) { try version.content.check { documents[$0] ?? [] } } catch {
            throw Refusal(error)
        }
        if !version.approvals.isEmpty { try await check(version, account, accepted: accepted) }
        let now = now()
        return try await database.write { database in
            switch try Self.verdict(version, of: account, after: revision, in: database) {
            case .answer(let answer): return answer
            case .store(let current):
                let content = Data(version.content.json.bytes)
                let original = current.map { $0.original ?? $0.content }
                let row = ContractRow(
                    id: version.id, account: account, revision: try Self.nextRevision(at: now, in: database),
                    state: version.state, content: content, approvals: version.approvals,
                    abandonment: version.abandonment, isShared: true, created: current?.created ?? now, changed: now,
                    original: original == content ? nil : original)
                try row.save(version.documents, in: database)
                return PutAnswer(outcome: .accepted(revision: row.revision), isNew: current == nil)
            }
        }
    }

    private enum Verdict {
        case answer(PutAnswer)
        /// Stores the version in the place of the row.
        case store(ContractRow?)
    }

    /// The rules: the same version is accepted whatever the condition is; else the condition and the state have to be right, only
    /// missing values filled in, only approvals added, and the documents there.
    private static func verdict(
        _ version: ContractVersion, of account: String, after revision: Int?, in database: Database
    ) throws -> Verdict {
        let row = try ContractRow.fetchOne(database, key: version.id)
        // The contract of another account, and one that hosts do not get, is none.
        let visible = row.flatMap { $0.account == account && $0.isShared ? $0 : nil }
        if let visible, visible.isSame(as: version) {
            return .answer(PutAnswer(outcome: .accepted(revision: visible.revision)))
        }
        let isDeleted = try Bool.fetchOne(
            database, sql: "SELECT EXISTS (SELECT 1 FROM deleted WHERE contract = ?)", arguments: [version.id])
        guard row == nil || visible != nil, visible?.revision == revision, isDeleted != true,
            try visible.map({
                try $0.version().mayBecome(version) && $0.mayBecome(version.content)
            })
                ?? ContractState.incomplete.mayBecome(version.state)
        else {
            let current = try visible.map { ServerContract(revision: $0.revision, version: try $0.version()) }
            return .answer(PutAnswer(outcome: .conflict(current)))
        }
        for (member, document) in version.documentsByMember {
            let size = try Int.fetchOne(
                database, sql: "SELECT size FROM document WHERE account = ? AND sha256 = ?",
                arguments: [account, document.sha256])
            guard size == document.size else {
                throw Refusal.invalid(member, "the server does not have the document \(document.sha256)")
            }
        }
        return .store(visible)
    }

    /// What is stored is read again for each list, here and by hosts, within the limits of a text. A content beyond them would spoil all
    /// lists.
    static func requireReadable(_ content: ContractContent) throws(Refusal) {
        do throws(ProviderError) {
            _ = try JSONValue(parsing: content.json.bytes)
        } catch {
            throw Refusal(error)
        }
        let most = JSONValue.maximumValues - ContractVersion.maximumEnvelope.values
        guard content.json.count <= most else {
            throw Refusal(
                .invalid(member: nil), "The contract has \(content.json.count) values; at most \(most) are taken.")
        }
    }

    private func check(_ version: ContractVersion, _ account: String, accepted: Int) async throws {
        let documents = try await database.read { database in
            for (index, approval) in version.approvals.enumerated() where approval.isByOwnIdentity {
                let isOfHost = try Bool.fetchOne(
                    database, sql: "SELECT EXISTS (SELECT 1 FROM certificate WHERE fingerprint = ?)",
                    arguments: [HostRegistry.fingerprint(Array(approval.certificate))])
                guard isOfHost != true else {
                    throw Refusal.invalid("approvals[\(index)].own_identity", "is the identity of a paired host")
                }
            }
            func content(_ reference: DocumentReference) throws -> [UInt8] {
                try Self.document(reference.sha256, of: account, in: database) ?? []
            }
            return SignedDocuments(
                original: try content(version.content.pdf.document), pdf: try content(version.pdf),
                evidence: try version.approvals.map {
                    (try content($0.evidence), try content($0.evidenceSignature))
                }, accepted: accepted)
        }
        try await evidence.check(documents, of: version)
    }
}

extension ContractState {
    /// Whether a host may still change the contract.
    var isOpen: Bool { self == .incomplete || self == .inProgress }
}

extension ContractVersion {
    /// The documents, and the member that names each.
    fileprivate var documentsByMember: [(member: String, document: DocumentReference)] {
        var documents = [("contract.pdf_file_path", content.pdf.document)]
        documents += content.attachments.enumerated().map { ("files[\($0)].path", $1.document) }
        if let last = approvals.last { documents.append(("approvals[\(approvals.count - 1)].pdf", last.pdf)) }
        for (index, approval) in approvals.enumerated() {
            let member = "approvals[\(index)]"
            documents += [
                ("\(member).evidence", approval.evidence), ("\(member).evidence_signature", approval.evidenceSignature),
            ]
        }
        return documents
    }
}

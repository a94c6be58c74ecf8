import CertificateProviding
import Contracts
import Crypto
import Foundation
import GRDB

// Codes that identify a signatory (modes 1 and 3).

/// A code, and where it goes.
struct CodeNotice: Equatable, Sendable {
    let mode: ContractContent.Mode
    let address: String
    /// Six digits.
    let code: String
    /// The contract's id.
    let contract: String
}

/// Hands codes to signatories.
protocol CodeNotifying: Sendable {
    /// - Throws: ``Refusal``: `noNotifier`.
    func notify(_ notice: CodeNotice) async throws
}

extension ContractBook {
    static let codeLifetime: TimeInterval = 600
    static let codeTries = 3
    /// In an hour, for one contract, and of one account to one address. Without it three tries for each code were no limit.
    static let codesInAnHour = 10

    /// Makes a code for the signature of a contract, in the place of an earlier one, and hands it to the notifier.
    ///
    /// The contract need not be here yet: it comes with its signature. The mode and the address are compared then.
    ///
    /// - Parameter document: The digest of the PDF that will be signed.
    /// - Throws: ``Refusal``: `invalid`, `tooManyCodes`, `noNotifier`.
    func makeCode(
        for id: String, _ mode: ContractContent.Mode, to address: String, document: String, of account: String,
        notifier: any CodeNotifying
    ) async throws {
        guard mode != .person else { throw Refusal.invalid("mode", "is 2, which needs no code") }
        let field = mode == .mail ? CustomerField.mail : CustomerField.mobile
        if let flaw = CustomerField.flaw(of: address, in: field) { throw Refusal.invalid("address", flaw) }
        guard DocumentReference.isDigest(document) else {
            throw Refusal.invalid("document", "is not a SHA-256 digest in hexadecimal")
        }
        var random = SystemRandomNumberGenerator()
        let number = Int.random(in: 0..<1_000_000, using: &random)
        let code = String(repeating: "0", count: 6 - "\(number)".count) + "\(number)"
        let (now, hash) = (now(), hash(code, for: id))
        try await database.write { database in
            try Self.requireOwn(id, mode, address, document, of: account, in: database)
            try Self.countCode(for: id, to: Self.counted(address, mode), of: account, at: now, in: database)
            try database.execute(
                sql: """
                    INSERT OR REPLACE INTO code
                        (contract, account, mode, address, document, hash, triesLeft, expires, confirmed)
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)
                    """,
                arguments: [
                    id, account, mode.rawValue, address, document, hash, Self.codeTries,
                    now.addingTimeInterval(Self.codeLifetime),
                ])
        }
        try await notifier.notify(CodeNotice(mode: mode, address: address, code: code, contract: id))
    }

    /// Confirms a code. Confirmed again with the same code, it stays so. A text that is not six digits costs no try.
    ///
    /// - Returns: The receipt, which the signature needs. It stays good when another host asks for a code, and after a restored
    ///   database: a signature that was made with it may not be sent yet.
    /// - Throws: ``Refusal``: `notFound`, `wrongCode`, `codeExpired`, `codeSpent`.
    func confirmCode(_ code: String, for id: String, document: String, of account: String) async throws -> String {
        let now = now()
        // A refusal inside the transaction would take back the count of tries.
        let result: Result<String, Refusal> = try await database.write { database in
            guard
                let row = try Row.fetchOne(
                    database, sql: "SELECT * FROM code WHERE contract = ? AND account = ? AND document = ?",
                    arguments: [id, account, document])
            else { return .failure(Refusal(.notFound, "No code was asked for this contract and document.")) }
            let (triesLeft, expires, confirmed): (Int, Date, Date?) = (
                row["triesLeft"], row["expires"], row["confirmed"]
            )
            guard triesLeft > 0 else {
                return .failure(Refusal(.codeSpent, "The code is used up by wrong tries. Ask for another one."))
            }
            guard confirmed != nil || now < expires else {
                return .failure(Refusal(.codeExpired, "The code has expired. Ask for another one."))
            }
            guard code.utf8.count == 6, code.utf8.allSatisfy({ (48...57).contains($0) }) else {
                return .failure(
                    Refusal(.wrongCode(triesLeft: triesLeft), "A code has six digits. Tries left: \(triesLeft)."))
            }
            guard isRight(code, for: id, hash: row["hash"]) else {
                try database.execute(
                    sql: "UPDATE code SET triesLeft = triesLeft - 1 WHERE contract = ?", arguments: [id])
                return .failure(
                    Refusal(.wrongCode(triesLeft: triesLeft - 1), "The code is wrong. Tries left: \(triesLeft - 1)."))
            }
            try database.execute(
                sql: "UPDATE code SET confirmed = coalesce(confirmed, ?) WHERE contract = ?", arguments: [now, id])
            return .success(
                receipt(for: id, of: account, document: document, mode: row["mode"], address: row["address"]))
        }
        return try result.get()
    }

    /// - Throws: ``Refusal`` unless the signature of a version needs no code, or has the receipt of a confirmed one for this document,
    ///   mode and address.
    func requireCode(for version: ContractVersion, of account: String) throws(Refusal) {
        let content = version.content
        guard content.mode != .person else { return }
        let statement = Self.statement(
            version.id, account, content.pdf.document.sha256, content.mode.rawValue, content.codeAddress ?? "")
        guard let receipt = version.signature?.receipt.flatMap({ Data(base64Encoded: $0) }),
            HMAC<SHA256>.isValidAuthenticationCode(receipt, authenticating: statement, using: codeKey)
        else {
            throw .invalid(
                "signature",
                "no code was confirmed for this document, as customer.mode \(content.mode.rawValue) needs")
        }
    }

    private func receipt(
        for id: String, of account: String, document: String, mode: Int, address: String
    ) -> String {
        let statement = Self.statement(id, account, document, mode, address)
        return Data(HMAC<SHA256>.authenticationCode(for: statement, using: codeKey)).base64EncodedString()
    }

    /// What a receipt says, in other bytes than those of a code's hash.
    private static func statement(
        _ id: String, _ account: String, _ document: String, _ mode: Int, _ address: String
    ) -> Data {
        Data(["confirmed", id, account, document, "\(mode)", address].joined(separator: "\n").utf8)
    }

    /// The contract of a code is the account's, if it is here, and what is asked for fits it.
    private static func requireOwn(
        _ id: String, _ mode: ContractContent.Mode, _ address: String, _ document: String, of account: String,
        in database: Database
    ) throws {
        let owner = try String.fetchOne(database, sql: "SELECT account FROM code WHERE contract = ?", arguments: [id])
        guard owner == nil || owner == account else {
            throw Refusal(.notFound, "There is no contract \(id) of this account.")
        }
        guard let row = try ContractRow.fetchOne(database, key: id) else { return }
        guard row.account == account, row.isShared else {
            throw Refusal(.notFound, "There is no contract \(id) of this account.")
        }
        guard row.state.isOpen else {
            throw Refusal(.wrongState, "The contract \(id) is \(row.state), and can no longer be signed.")
        }
    }

    /// What the codes to an address are counted by: one for all its spellings.
    ///
    /// Of a telephone number the last seven digits: with a country's code, `00`, a zero in front or none, and with whatever signs
    /// between them, it is one number. Of a mail address no case and no tag behind a `+`.
    private static func counted(_ address: String, _ mode: ContractContent.Mode) -> String {
        guard mode == .mail else { return String(address.filter { $0.isASCII && $0.isNumber }.suffix(7)) }
        let parts = address.lowercased().split(separator: "@")
        return "\(parts[0].prefix { $0 != "+" })@\(parts[1...].joined())"
    }

    private static func countCode(
        for id: String, to address: String, of account: String, at now: Date, in database: Database
    ) throws {
        let begin = now.addingTimeInterval(-3600)
        try database.execute(sql: "DELETE FROM codeRequest WHERE time < ?", arguments: [begin])
        let counts = try Row.fetchOne(
            database,
            sql: """
                SELECT count(*) FILTER (WHERE contract = ?) AS a, count(*) FILTER (WHERE address = ? AND account = ?) AS b
                FROM codeRequest
                """,
            arguments: [id, address, account])
        guard max(counts?["a"] ?? 0, counts?["b"] ?? 0) < codesInAnHour else {
            throw Refusal(
                .tooManyCodes,
                "\(codesInAnHour) codes were asked for within an hour, for this contract or by this account for this address. Wait, and ask again."
            )
        }
        try database.execute(
            sql: "INSERT INTO codeRequest (contract, address, account, time) VALUES (?, ?, ?, ?)",
            arguments: [id, address, account, now])
    }

    private func hash(_ code: String, for id: String) -> Data {
        Data(HMAC<SHA256>.authenticationCode(for: Data("\(id) \(code)".utf8), using: codeKey))
    }

    /// Compares in constant time.
    private func isRight(_ code: String, for id: String, hash: Data) -> Bool {
        HMAC<SHA256>.isValidAuthenticationCode(hash, authenticating: Data("\(id) \(code)".utf8), using: codeKey)
    }
}

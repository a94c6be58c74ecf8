import CertificateProviding
import Contracts
import Crypto
import Foundation
import GRDB

// Codes that identify signatories (modes 1 and 3).

/// A code, and where it goes.
struct CodeNotice: Equatable, Sendable {
    let channel: CodeChannel
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
    /// In an hour, for one signatory of a contract, and of one account to one address. Without it three tries for each code were no limit.
    static let codesInAnHour = 10

    /// Makes a code for a signatory of a contract, in the place of an earlier one that goes the same way, and hands it to the notifier.
    ///
    /// The contract need not be here yet: it comes with its signature. The signatory and the address are compared then.
    ///
    /// - Throws: ``Refusal``: `tooManyCodes`, `noNotifier`, `notFound`, `wrongState`.
    func makeCode(_ request: CodeRequest, of account: String, notifier: any CodeNotifying) async throws {
        var random = SystemRandomNumberGenerator()
        let number = Int.random(in: 0..<1_000_000, using: &random)
        let code = String(repeating: "0", count: 6 - "\(number)".count) + "\(number)"
        let (now, hash) = (now(), hash(code, for: request))
        try await database.write { database in
            try Self.requireOwn(request.contract, of: account, in: database)
            try Self.countCode(request, of: account, at: now, in: database)
            try database.execute(
                sql: """
                    INSERT OR REPLACE INTO code
                        (contract, signatory, channel, account, address, document, hash, triesLeft, expires, confirmed)
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)
                    """,
                arguments: [
                    request.contract, request.signatory, request.channel.rawValue, account, request.address,
                    request.document, hash, Self.codeTries, now.addingTimeInterval(Self.codeLifetime),
                ])
        }
        try await notifier.notify(
            CodeNotice(channel: request.channel, address: request.address, code: code, contract: request.contract))
    }

    /// Confirms a code. Confirmed again with the same code, it stays so. A text that is not six digits costs no try.
    ///
    /// - Returns: The receipt, which the signature needs. It stays good when another host asks for a code, and after a restored
    ///   database: a signature that was made with it may not be sent yet.
    /// - Throws: ``Refusal``: `notFound`, `wrongCode`, `codeExpired`, `codeSpent`.
    func confirmCode(_ code: String, for request: CodeRequest, of account: String) async throws -> String {
        let now = now()
        // A refusal inside the transaction would take back the count of tries.
        let result: Result<String, Refusal> = try await database.write { database in
            guard
                let row = try Row.fetchOne(
                    database,
                    sql: """
                        SELECT * FROM code WHERE contract = ? AND signatory = ? AND channel = ? AND account = ?
                        AND address = ? AND document = ?
                        """,
                    arguments: [
                        request.contract, request.signatory, request.channel.rawValue, account, request.address,
                        request.document,
                    ])
            else {
                return .failure(
                    Refusal(.notFound, "No code was asked for this contract, signatory, address and document."))
            }
            let key: StatementArguments = [request.contract, request.signatory, request.channel.rawValue]
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
            guard isRight(code, for: request, hash: row["hash"]) else {
                try database.execute(
                    sql: "UPDATE code SET triesLeft = triesLeft - 1 \(Self.ofCode)", arguments: key)
                return .failure(
                    Refusal(.wrongCode(triesLeft: triesLeft - 1), "The code is wrong. Tries left: \(triesLeft - 1)."))
            }
            try database.execute(
                sql: "UPDATE code SET confirmed = coalesce(confirmed, ?) \(Self.ofCode)",
                arguments: StatementArguments([now]) + key)
            return .success(receipt(for: request, of: account))
        }
        return try result.get()
    }

    private static let ofCode = "WHERE contract = ? AND signatory = ? AND channel = ?"

    /// - Throws: ``Refusal`` unless each approval by a host's identity has the receipts of the signatory's codes, for this document and the
    ///   addresses.
    func requireCodes(for version: ContractVersion, of account: String) throws(Refusal) {
        for (index, approval) in version.approvals.enumerated() where !approval.isByOwnIdentity {
            let signatory = version.content.signatories[approval.signatory]
            for (code, receipt) in zip(signatory.codes, approval.receipts) {
                let request = CodeRequest(
                    contract: version.id, signatory: approval.signatory, channel: code.channel, address: code.address,
                    document: version.content.pdf.document.sha256)
                guard let receipt = Data(base64Encoded: receipt),
                    HMAC<SHA256>.isValidAuthenticationCode(
                        receipt, authenticating: Self.statement(request, account), using: codeKey)
                else {
                    throw .invalid(
                        "approvals[\(index)].receipts",
                        "no code by \(code.channel.rawValue) was confirmed for this document and signatory, as mode \(signatory.mode.rawValue) needs"
                    )
                }
            }
        }
    }

    private func receipt(for request: CodeRequest, of account: String) -> String {
        Data(HMAC<SHA256>.authenticationCode(for: Self.statement(request, account), using: codeKey))
            .base64EncodedString()
    }

    /// What a receipt says, in other bytes than those of a code's hash.
    private static func statement(_ request: CodeRequest, _ account: String) -> Data {
        let parts = [
            "confirmed", request.contract, account, request.document, "\(request.signatory)", request.channel.rawValue,
            request.address,
        ]
        return Data(parts.joined(separator: "\n").utf8)
    }

    /// The contract of a code is the account's, if it is here, and can be signed.
    private static func requireOwn(_ id: String, of account: String, in database: Database) throws {
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
    private static func counted(_ address: String, _ channel: CodeChannel) -> String {
        guard channel == .mail else { return String(address.filter { $0.isASCII && $0.isNumber }.suffix(7)) }
        let parts = address.lowercased().split(separator: "@")
        return "\(parts[0].prefix { $0 != "+" })@\(parts[1...].joined())"
    }

    private static func countCode(
        _ request: CodeRequest, of account: String, at now: Date, in database: Database
    ) throws {
        let address = counted(request.address, request.channel)
        let begin = now.addingTimeInterval(-3600)
        try database.execute(sql: "DELETE FROM codeRequest WHERE time < ?", arguments: [begin])
        let counts = try Row.fetchOne(
            database,
            sql: """
                SELECT count(*) FILTER (WHERE contract = ? AND signatory = ?) AS a, count(*) FILTER (WHERE address = ? AND account = ?) AS b
                FROM codeRequest
                """,
            arguments: [request.contract, request.signatory, address, account])
        guard max(counts?["a"] ?? 0, counts?["b"] ?? 0) < codesInAnHour else {
            throw Refusal(
                .tooManyCodes,
                "\(codesInAnHour) codes were asked for within an hour, for this signatory of the contract or by this account for this address. Wait, and ask again."
            )
        }
        try database.execute(
            sql: "INSERT INTO codeRequest (contract, signatory, address, account, time) VALUES (?, ?, ?, ?, ?)",
            arguments: [request.contract, request.signatory, address, account, now])
    }

    private func hash(_ code: String, for request: CodeRequest) -> Data {
        Data(HMAC<SHA256>.authenticationCode(for: Self.secret(code, request), using: codeKey))
    }

    /// Compares in constant time.
    private func isRight(_ code: String, for request: CodeRequest, hash: Data) -> Bool {
        HMAC<SHA256>.isValidAuthenticationCode(hash, authenticating: Self.secret(code, request), using: codeKey)
    }

    private static func secret(_ code: String, _ request: CodeRequest) -> Data {
        Data("\(request.contract) \(request.signatory) \(request.channel.rawValue) \(code)".utf8)
    }
}

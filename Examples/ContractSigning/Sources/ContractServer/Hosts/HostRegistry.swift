import CertificateProviding
import Crypto
import Foundation
import GRDB
import X509

/// A paired host.
struct Host: Equatable, Sendable {
    let id: Int64
    let account: String
}

/// Accounts, tokens that pair, hosts and their certificates. Of a token only the hash is stored.
struct HostRegistry: Sendable {
    let database: any DatabaseWriter
    let accounts: Accounts
    let now: @Sendable () -> Date

    init(_ database: ServerDatabase, accounts: Accounts, now: @escaping @Sendable () -> Date = { Date() }) {
        (self.database, self.accounts, self.now) = (database.writer, accounts, now)
    }

    // MARK: Tokens

    /// Makes a token that pairs one host with an account, until a time.
    func makeToken(for account: String, until expiry: Date) async throws -> String {
        // 256 bits. In base64 there are `+`, `/` and `=` in it, as the vendor's has them.
        let token = SymmetricKey(size: .bits256).withUnsafeBytes { Data($0).base64EncodedString() }
        let (hash, now) = (Self.hash(token), now())
        try await database.write { database in
            try database.execute(sql: "DELETE FROM token WHERE expires < ?", arguments: [now])
            try database.execute(
                sql: "INSERT INTO token (hash, account, expires) VALUES (?, ?, ?)", arguments: [hash, account, expiry])
        }
        return token
    }

    /// Returns the account that a token pairs with; `nil` for a wrong, expired or used token.
    func account(ofToken token: String) async throws -> String? {
        let (hash, now) = (Self.hash(token), now())
        return try await database.read { database in
            try self.account(ofToken: hash, at: now, in: database)
        }
    }

    private func account(ofToken hash: Data, at now: Date, in database: Database) throws -> String? {
        let account = try String.fetchOne(
            database, sql: "SELECT account FROM token WHERE hash = ? AND used IS NULL AND expires > ?",
            arguments: [hash, now])
        return account.flatMap { accounts.contains($0) ? $0 : nil }
    }

    /// A token has 256 random bits: its hash needs no salt, and finding it in an index tells nothing of it.
    private static func hash(_ token: String) -> Data { Data(SHA256.hash(data: Data(token.utf8))) }

    // MARK: Hosts

    /// Whether a host is paired, or has been.
    var hasHosts: Bool {
        get async throws {
            try await database.read { try Bool.fetchOne($0, sql: "SELECT EXISTS (SELECT 1 FROM host)") } ?? false
        }
    }

    /// Uses a token up, and registers the host whose certificate it is for.
    ///
    /// - Returns: `nil` for a token that has been used meanwhile.
    func pair(withToken token: String, _ certificate: Certificate) async throws -> Host? {
        let (hash, now) = (Self.hash(token), now())
        let name = "\(certificate.subject)"
        let row = try CertificateRow(certificate)
        return try await database.write { database in
            guard let account = try self.account(ofToken: hash, at: now, in: database) else { return nil }
            try database.execute(sql: "UPDATE token SET used = ? WHERE hash = ?", arguments: [now, hash])
            try database.execute(
                sql: "INSERT INTO host (account, name, paired) VALUES (?, ?, ?)", arguments: [account, name, now])
            let host = Host(id: database.lastInsertedRowID, account: account)
            try row.insert(for: host, in: database)
            return host
        }
    }

    /// Registers the next certificate of a host. The earlier ones go on being accepted until they expire: the host may not
    /// have got the new one.
    ///
    /// - Returns: Whether the host is still paired.
    func add(_ certificate: Certificate, to host: Host) async throws -> Bool {
        let row = try CertificateRow(certificate)
        return try await database.write { database in
            guard
                try Bool.fetchOne(
                    database, sql: "SELECT unpaired IS NULL FROM host WHERE id = ?", arguments: [host.id]) == true
            else { return false }
            try row.insert(for: host, in: database)
            return true
        }
    }

    /// Returns the paired host of a certificate; `nil` for another authority's, a revoked and an expired one.
    func host(withCertificate fingerprint: String) async throws -> Host? {
        let now = now()
        let row = try await database.read { database in
            try Row.fetchOne(
                database,
                sql: """
                    SELECT host.id, host.account FROM certificate JOIN host ON host.id = certificate.host
                    WHERE fingerprint = ? AND expires > ? AND unpaired IS NULL
                    """, arguments: [fingerprint, now]
            ).map { Host(id: $0["id"], account: $0["account"]) }
        }
        return row.flatMap { accounts.contains($0.account) ? $0 : nil }
    }

    /// Revokes all certificates of a host.
    func unpair(_ host: Host) async throws {
        let now = now()
        try await database.write { database in
            try database.execute(
                sql: "UPDATE host SET unpaired = coalesce(unpaired, ?) WHERE id = ?", arguments: [now, host.id])
        }
    }

    /// Revokes the certificates of all hosts of an account, and its tokens.
    ///
    /// - Returns: The number of hosts.
    func unpairAll(of account: String) async throws -> Int {
        let now = now()
        return try await database.write { database in
            try database.execute(sql: "DELETE FROM token WHERE account = ?", arguments: [account])
            try database.execute(
                sql: "UPDATE host SET unpaired = ? WHERE account = ? AND unpaired IS NULL", arguments: [now, account])
            return database.changesCount
        }
    }

    private struct CertificateRow: Sendable {
        let fingerprint: String
        let (issued, expires): (Date, Date)

        init(_ certificate: Certificate) throws {
            fingerprint = HostRegistry.fingerprint(try certificate.derRepresentation)
            (issued, expires) = (certificate.notValidBefore, certificate.notValidAfter)
        }

        func insert(for host: Host, in database: Database) throws {
            try database.execute(
                sql: "INSERT INTO certificate (fingerprint, host, issued, expires) VALUES (?, ?, ?, ?)",
                arguments: [fingerprint, host.id, issued, expires])
        }
    }

    /// Names a certificate by the SHA-256 of its DER.
    static func fingerprint(_ der: [UInt8]) -> String { DisplayText.hexadecimal(SHA256.hash(data: der)) }
}

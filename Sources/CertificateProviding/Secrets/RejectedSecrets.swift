import Crypto

import Logging

extension ProviderEnvironment {
    /// Whether a server has rejected this password before. Ask before a password from a file or another source is sent, so that
    /// none is sent again by itself: not by a retry, by another process or after a restart. Some servers lock an account after a few
    /// wrong passwords. A password that a user has just typed is sent without asking: that is how one that is right again comes back.
    ///
    /// - Parameter account: The server and the user of the password, such as `device@mdm.example.com:443`.
    /// - Throws: `storeReadFailed` for a record that cannot be read, or that a newer version has written. Send no password then.
    public func isRejected(
        _ secret: SecretBytes, for account: String
    ) async throws(CertificateProviderError) -> Bool {
        let rejected = RejectedSecrets(in: storage)
        return try await executor.run { () throws(CertificateProviderError) in
            try rejected.contains(secret, for: account)
        }
    }

    /// Notes in ``storage`` that a server has rejected or accepted a password. A failure to write is logged: the password is then
    /// sent once more.
    ///
    /// - Parameter account: As for ``isRejected(_:for:)``.
    public func note(_ secret: SecretBytes, for account: String, isRejected: Bool) async {
        let rejected = RejectedSecrets(in: storage)
        do throws(CertificateProviderError) {
            try await executor.run { () throws(CertificateProviderError) in
                if isRejected {
                    try rejected.insert(secret, for: account)
                } else {
                    try rejected.remove(secret, for: account)
                }
            }
        } catch {
            logger.warning(
                "the outcome of an authentication could not be recorded, so that a wrong password may be sent again",
                metadata: ["account": "\(account)", "reason": "\(error)"])
        }
    }
}

/// The passwords that servers have rejected, as a record of a provider.
///
/// The calls read and write small local files: they block for a short, bounded time and may be made from any thread.
package struct RejectedSecrets: Sendable {
    // The content: the format version, 1; 32 random bytes, the key of the hashes; and for each password, the oldest first,
    // HMAC-SHA256 of its account, NUL and the password. A slow hash is not needed: the seal around the record keeps the hashes
    // secret, and a reader with its key can read this user's files, where the right password is.
    private static let version: UInt8 = 1
    private static let keySize = 32
    private static let hashSize = 32
    /// More are forgotten, the oldest first.
    private static let maximumCount = 32

    package static let recordName = "rejected-secrets"

    private let storage: any IdentityStorage

    package init(in storage: any IdentityStorage) { self.storage = storage }

    /// - Throws: `storeReadFailed` for a record that cannot be read, or that a newer version has written.
    package func contains(_ secret: SecretBytes, for account: String) throws(CertificateProviderError) -> Bool {
        guard let record = try Content(try storage.record(named: Self.recordName)) else { return false }
        return record.contains(secret, account)
    }

    /// - Throws: `storeWriteFailed`, and as ``contains(_:for:)``.
    package func insert(_ secret: SecretBytes, for account: String) throws(CertificateProviderError) {
        try storage.updateRecord(named: Self.recordName) { content throws(CertificateProviderError) in
            var record = try Content(content) ?? Content()
            guard !record.contains(secret, account) else { return nil }
            record.hashes.append(record.hash(secret, account).withUnsafeBytes { Array($0) })
            return record.encoded
        }
    }

    /// Writes only if the password was noted as rejected.
    ///
    /// - Throws: As ``insert(_:for:)``.
    package func remove(_ secret: SecretBytes, for account: String) throws(CertificateProviderError) {
        guard try contains(secret, for: account) else { return }
        try storage.updateRecord(named: Self.recordName) { content throws(CertificateProviderError) in
            guard var record = try Content(content) else { return nil }
            let hash = record.hash(secret, account)
            record.hashes.removeAll { hash == $0 }
            return record.encoded
        }
    }

    private struct Content {
        let key: [UInt8]
        var hashes: [[UInt8]] = []

        init() { key = SymmetricKey(size: .bits256).withUnsafeBytes { Array($0) } }

        /// `nil` if there is no record.
        init?(_ record: SecretBytes?) throws(CertificateProviderError) {
            guard let bytes = record?.withUnsafeBytes({ Array($0) }) else { return nil }
            let version = bytes.first ?? 0
            guard version <= RejectedSecrets.version else {
                throw Self.unreadable("was written by a newer certprov; update certprov")
            }
            let start = 1 + RejectedSecrets.keySize
            guard version == RejectedSecrets.version, bytes.count >= start,
                (bytes.count - start).isMultiple(of: RejectedSecrets.hashSize)
            else {
                throw Self.unreadable(
                    "is damaged; remove its file from the state directory: records/*/\(RejectedSecrets.recordName)")
            }
            key = Array(bytes[1..<start])
            hashes = stride(from: start, to: bytes.count, by: RejectedSecrets.hashSize).map {
                Array(bytes[$0..<($0 + RejectedSecrets.hashSize)])
            }
        }

        var encoded: SecretBytes {
            SecretBytes(
                copying: [RejectedSecrets.version] + key + hashes.suffix(RejectedSecrets.maximumCount).flatMap { $0 })
        }

        func contains(_ secret: SecretBytes, _ account: String) -> Bool {
            // Compared in constant time.
            let hash = hash(secret, account)
            return hashes.contains { hash == $0 }
        }

        func hash(_ secret: SecretBytes, _ account: String) -> HMAC<SHA256>.MAC {
            var hmac = HMAC<SHA256>(key: SymmetricKey(data: key))
            hmac.update(data: Array(account.utf8) + [0])
            secret.withUnsafeBytes { hmac.update(data: $0) }
            return hmac.finalize()
        }

        private static func unreadable(_ reason: String) -> CertificateProviderError {
            CertificateProviderError(
                .storeReadFailed, "No configured password is sent: the record of rejected passwords \(reason).")
        }
    }
}

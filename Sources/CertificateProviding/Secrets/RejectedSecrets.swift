import Crypto
package import FoundationEssentials
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
    ) async throws(ProviderError) -> Bool {
        let rejected = RejectedSecrets(in: storage.shared)
        return try await executor.run { () throws(ProviderError) in
            try rejected.contains(secret, for: account)
        }
    }

    /// Notes in ``storage``, for all configurations of the provider, that a server has rejected or accepted a password. A failure to write is logged: the password is then
    /// sent once more.
    ///
    /// - Parameter account: As for ``isRejected(_:for:)``.
    public func noteOutcome(of secret: SecretBytes, for account: String, isRejected: Bool) async {
        let rejected = RejectedSecrets(in: storage.shared)
        do throws(ProviderError) {
            try await executor.run { () throws(ProviderError) in
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
    package static let recordName = "rejected-secrets"
    /// More are forgotten, the oldest first.
    private static let maximumCount = 32

    private let storage: any IdentityStorage

    package init(in storage: any IdentityStorage) { self.storage = storage }

    /// Returns a record of none, to replace one.
    package static func none() throws(ProviderError) -> SecretBytes { try Content().encoded() }

    /// - Throws: `storeReadFailed` for a record that cannot be read, or that a newer version has written.
    package func contains(_ secret: SecretBytes, for account: String) throws(ProviderError) -> Bool {
        try Content(try storage.record(named: Self.recordName)).contains(secret, account)
    }

    /// - Throws: `storeWriteFailed`, and as ``contains(_:for:)``.
    package func insert(_ secret: SecretBytes, for account: String) throws(ProviderError) {
        try storage.updateRecord(named: Self.recordName) { record throws(ProviderError) in
            var content = try Content(record)
            guard !content.contains(secret, account) else { return nil }
            content.hashes = (content.hashes + [content.key.hash(secret, for: account)]).suffix(Self.maximumCount)
            return try content.encoded()
        }
    }

    /// Writes only if the password was noted as rejected.
    ///
    /// - Throws: As ``insert(_:for:)``.
    package func remove(_ secret: SecretBytes, for account: String) throws(ProviderError) {
        guard try contains(secret, for: account) else { return }
        try storage.updateRecord(named: Self.recordName) { record throws(ProviderError) in
            var content = try Content(record)
            content.hashes.removeAll { content.key.isHash($0, of: secret, for: account) }
            return try content.encoded()
        }
    }

    private struct Content: Codable {
        static let format = VersionedRecord<Self>(
            of: "rejected passwords",
            ifDamaged: "remove its file from the state directory: records/*/\(RejectedSecrets.recordName)")
        var key = SecretHashKey()
        /// The oldest first.
        var hashes: [Data] = []

        init() {}

        init(_ record: SecretBytes?) throws(ProviderError) {
            guard let record else { return }
            do throws(ProviderError) { self = try Self.format.content(of: record) } catch {
                // Not as damage, after which a caller might go on.
                throw ProviderError(.storeReadFailed, "No configured password is sent. \(error.message)")
            }
        }

        func encoded() throws(ProviderError) -> SecretBytes { try Self.format.record(of: self) }

        func contains(_ secret: SecretBytes, _ account: String) -> Bool {
            hashes.contains { key.isHash($0, of: secret, for: account) }
        }
    }
}

/// Recognises secrets that a record has not: a random key and HMAC-SHA256.
///
/// A slow hash is not needed: the seal around the record keeps the hashes secret, and a reader with its key can read this user's
/// files, where the right password is.
package struct SecretHashKey: Codable, Sendable {
    private let key: Data

    package init() { key = SymmetricKey(size: .bits256).withUnsafeBytes { Data($0) } }

    package init(from decoder: any Decoder) throws { key = try decoder.singleValueContainer().decode(Data.self) }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(key)
    }

    /// - Parameter account: What the secret is for.
    package func hash(_ secret: SecretBytes, for account: String) -> Data { Data(code(secret, account)) }

    /// Compares in constant time.
    package func isHash(_ hash: Data, of secret: SecretBytes, for account: String) -> Bool {
        code(secret, account) == hash
    }

    private func code(_ secret: SecretBytes, _ account: String) -> HMAC<SHA256>.MAC {
        var hmac = HMAC<SHA256>(key: SymmetricKey(data: key))
        hmac.update(data: Array(account.utf8) + [0])
        secret.withUnsafeBytes { hmac.update(data: $0) }
        return hmac.finalize()
    }
}

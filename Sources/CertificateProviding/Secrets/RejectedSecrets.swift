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
        let storage = storage.shared
        return try await executor.run { () throws(ProviderError) in
            try storage.rejectedSecrets().contains(secret, for: account)
        }
    }

    /// Notes in ``storage``, for all configurations of the provider, that a server has rejected or accepted a password. A failure to write is logged: the password is then
    /// sent once more.
    ///
    /// - Parameter account: As for ``isRejected(_:for:)``.
    public func noteOutcome(of secret: SecretBytes, for account: String, isRejected: Bool) async {
        let storage = storage.shared
        do throws(ProviderError) {
            try await executor.run { () throws(ProviderError) in
                try storage.updateRejectedSecrets {
                    if isRejected { $0.insert(secret, for: account) } else { $0.remove(secret, for: account) }
                }
            }
        } catch {
            logger.warning(
                "the outcome of an authentication could not be recorded, so that a wrong password may be sent again",
                metadata: ["account": "\(account)", "reason": "\(error)"])
        }
    }
}

extension IdentityStorage {
    /// Returns the rejected secrets of this storage.
    ///
    /// - Throws: `storeReadFailed` for a record that cannot be read, or that a newer version has written.
    package func rejectedSecrets() throws(ProviderError) -> RejectedSecrets {
        try RejectedSecrets(try record(named: RejectedSecrets.recordName))
    }

    /// Changes the rejected secrets of this storage, and writes them if that makes a difference.
    ///
    /// - Parameter change: May be called twice: first on a copy that was read without a lock, which works on a read-only disk.
    /// - Returns: What `change` has returned last.
    /// - Throws: `storeWriteFailed`, and as ``rejectedSecrets()``.
    @discardableResult
    package func updateRejectedSecrets<Result>(
        _ change: (inout RejectedSecrets) -> Result
    ) throws(ProviderError) -> Result {
        let before = try rejectedSecrets()
        var after = before
        var result = change(&after)
        guard after != before else { return result }
        try updateRecord(named: RejectedSecrets.recordName) { record throws(ProviderError) in
            let before = try RejectedSecrets(record)
            var after = before
            result = change(&after)
            return after == before ? nil : try after.record()
        }
        return result
    }
}

/// The secrets that were rejected, or sent without an answer, each with what it is for: so that none is sent again by itself.
///
/// They are recognised by a random key and HMAC-SHA256. A slow hash is not needed where the record is sealed: a reader with the key of
/// the seal can read this user's files, where the right secret is.
package struct RejectedSecrets: Codable, Equatable, Sendable {
    package static let recordName = "rejected-secrets"
    private static let maximumTries = 4

    /// How often a secret was sent that was neither accepted nor rejected: the connection was closed, a gateway answered, or the
    /// process was killed. It may be wrong, and each time may have counted.
    package struct Tries: Codable, Equatable, Sendable {
        fileprivate let hash: Data
        package let count: Int
        /// When it was sent the last time.
        fileprivate(set) var last: Date

        /// When it may be sent again: once more at once, then after an hour, then once a day.
        package var next: Date {
            switch count {
            case ...1: last
            case 2: last + 3600
            default: last + 86400
            }
        }
    }

    /// Random. It is a salt for those who derive what they note from the secret.
    package let key: Data
    /// Of the rejected ones, the oldest first.
    private var hashes: [Data] = []
    private var tries: [Tries] = []

    package init() { key = SymmetricKey(size: .bits256).withUnsafeBytes { Data($0) } }

    /// Reads a record; `nil` has none.
    ///
    /// - Parameter remedy: The next step if it is damaged.
    /// - Throws: `storeReadFailed` for a record that is damaged, or that a newer version has written.
    package init(
        _ record: SecretBytes?,
        ifDamaged remedy: String = "remove its file from the state directory: records/*/\(RejectedSecrets.recordName)"
    ) throws(ProviderError) {
        guard let record else {
            self.init()
            return
        }
        do throws(ProviderError) { self = try Self.format(remedy).content(of: record) } catch {
            // Not as damage, after which a caller might go on.
            throw ProviderError(.storeReadFailed, "No configured secret is used. \(error.message)")
        }
    }

    package func record() throws(ProviderError) -> SecretBytes { try Self.format("").record(of: self) }

    private static func format(_ remedy: String) -> VersionedRecord<Self> {
        VersionedRecord(of: "rejected secrets", ifDamaged: remedy)
    }

    /// Whether none was rejected.
    package var isEmpty: Bool { hashes.isEmpty }

    /// Whether it was rejected. Compares in constant time, as all below.
    ///
    /// - Parameter account: What the secret is for.
    package func contains(_ secret: SecretBytes, for account: String) -> Bool {
        let hash = hash(secret, account)
        return hashes.contains { hash == $0 }
    }

    /// Notes that it was rejected, which is an answer.
    ///
    /// - Parameter maximum: More are forgotten, the oldest first.
    package mutating func insert(_ secret: SecretBytes, for account: String, keeping maximum: Int = 32) {
        removeTries(secret, for: account)
        guard !contains(secret, for: account) else { return }
        hashes = (hashes + [Data(hash(secret, account))]).suffix(maximum)
    }

    /// Forgets all of it: it was accepted.
    package mutating func remove(_ secret: SecretBytes, for account: String) {
        removeTries(secret, for: account)
        let hash = hash(secret, account)
        hashes.removeAll { hash == $0 }
    }

    /// Counts that a secret is sent now, unless it is too early. One that was changed begins anew. A fifth one takes the place of the
    /// one that was sent longest ago, and has its tries: else secrets that are sent by turns would be sent without a limit.
    ///
    /// - Returns: The tries so far if it is too early; `nil` if it may be sent.
    package mutating func addTry(_ secret: SecretBytes, for account: String, at now: Date) -> Tries? {
        // The clock was set back.
        for index in tries.indices { tries[index].last = min(tries[index].last, now) }
        let hash = hash(secret, account)
        var index = tries.firstIndex { hash == $0.hash }
        if index == nil, tries.count >= Self.maximumTries {
            index = tries.indices.min { tries[$0].last < tries[$1].last }
        }
        if let index, tries[index].next > now { return tries[index] }
        let count = index.map { tries.remove(at: $0).count } ?? 0
        tries.append(Tries(hash: Data(hash), count: count + 1, last: now))
        return nil
    }

    /// Forgets its tries: there is an answer, or a user has typed it.
    package mutating func removeTries(_ secret: SecretBytes, for account: String) {
        let hash = hash(secret, account)
        tries.removeAll { hash == $0.hash }
    }

    private func hash(_ secret: SecretBytes, _ account: String) -> HMAC<SHA256>.MAC {
        var hmac = HMAC<SHA256>(key: SymmetricKey(data: key))
        hmac.update(data: Array(account.utf8) + [0])
        secret.withUnsafeBytes { hmac.update(data: $0) }
        return hmac.finalize()
    }
}

import CertificateProviding
import Logging

/// The key pairs that are being made on tokens, as they rest in the identity store: nobody else would ever find what a
/// process leaves that is killed in the middle.
///
/// Each is written down by its `CKA_ID` before the token is told to make it, and crossed out when it is handed over or
/// destroyed. For that a token has a few records, and whoever makes a key has the claim of one until then. So what stands
/// in a record that nobody has the claim of is of a process that has ended.
///
/// A record is the format's version, 1, and behind it the id; nothing where there is none.
struct PendingKeys: Sendable {
    let storage: any IdentityStorage
    let logger: Logger

    private static let format: UInt8 = 1
    /// As many are made at a time on one token, by all processes.
    private static let maximum = 16

    /// A key pair that is written down. Has the claim of its record.
    struct Entry: Sendable {
        let id: [UInt8]
        fileprivate let name: String
        fileprivate let claim: RecordClaim
        fileprivate let storage: any IdentityStorage

        /// Crosses it out.
        func end() throws(CertificateProviderError) {
            try write([])
            claim.isInterrupted = false
        }

        fileprivate func write(_ id: [UInt8]) throws(CertificateProviderError) {
            try storage.updateRecord(named: name) { _ in SecretBytes(copying: [PendingKeys.format] + id) }
        }
    }

    /// Writes a key pair down that is going to be made.
    /// - Throws: What the store says, and `unavailable` where too many are being made.
    func begin(_ id: [UInt8], on token: Slot.Identity) throws(CertificateProviderError) -> Entry {
        do throws(CertificateProviderError) {
            for name in names(for: token) {
                guard let claim = try storage.claimRecord(named: name), try self.id(in: name) == nil else { continue }
                let entry = Entry(id: id, name: name, claim: claim, storage: storage)
                try entry.write(id)
                return entry
            }
        } catch {
            throw CertificateProviderError(
                error.code, "No key pair is made, since that cannot be written down before. \(error.message)",
                underlying: error)
        }
        throw CertificateProviderError(
            .unavailable,
            "\(Self.maximum) key pairs are being made on the token '\(token.label.withVisibleControls)'; "
                + "try again when one is done.")
    }

    /// What processes have left on a token that have ended in the middle. Those that cannot be read are logged.
    func orphans(on token: Slot.Identity) -> [Entry] {
        var orphans: [Entry] = []
        for name in names(for: token) {
            do throws(CertificateProviderError) {
                // Read again under the claim: whoever had it may just have come to the end.
                guard try id(in: name) != nil, let claim = try storage.claimRecord(named: name),
                    let id = try id(in: name)
                else { continue }
                orphans.append(Entry(id: id, name: name, claim: claim, storage: storage))
            } catch {
                logger.warning(
                    "whether a key pair was left on the token is not known", metadata: ["reason": "\(error)"])
            }
        }
        return orphans
    }

    /// Crosses a key pair out whose process ended after somebody had written it down, and before it could be crossed out.
    func keep(_ id: [UInt8], on token: Slot.Identity) throws(CertificateProviderError) {
        for orphan in orphans(on: token) where orphan.id == id { try orphan.end() }
    }

    private func names(for token: Slot.Identity) -> [String] {
        (0..<Self.maximum).map { "\(token.recordName("keys"))-\($0)" }
    }

    private func id(in name: String) throws(CertificateProviderError) -> [UInt8]? {
        guard let record = try storage.record(named: name).map({ $0.withUnsafeBytes { Array($0) } }) else { return nil }
        guard record.first == Self.format else {
            throw CertificateProviderError(
                .storeReadFailed, "What is remembered of key pairs was written by a newer certprov; update this one.")
        }
        return record.count > 1 ? Array(record.dropFirst()) : nil
    }
}

extension Token {
    /// Destroys what was left on the token by processes that ended while they made a key pair. What cannot be destroyed
    /// now may be the next time.
    func destroyOrphans(in session: Session) {
        for orphan in pending.orphans(on: identity) {
            do {
                try session.destroyOrphan(id: orphan.id)
                try orphan.end()
            } catch {
                pending.logger.warning(
                    "a key pair is left on the token",
                    metadata: ["id": "\(orphan.id.hexEncoded)", "reason": "\(error)"])
            }
        }
    }
}

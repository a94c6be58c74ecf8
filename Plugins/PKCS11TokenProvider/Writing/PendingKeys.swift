import CertificateProviding
import FoundationEssentials
import Logging

/// The key pairs that are being made on tokens, as stored in the identity store. Without this record, the objects of a process
/// that is killed in the middle would never be found.
///
/// Each is written down by its `CKA_ID` before the token is told to make it, and crossed out when it is handed over or
/// destroyed. For that a token has a few records, and the process that makes a key has the lease of one until then. So a
/// record whose lease is free names the key of a process that has ended.
///
/// A token that is elsewhere goes on with what its client has asked for when that was killed. So a pair that was not
/// found whole is looked for again, for a while.
struct PendingKeys: Sendable {
    let storage: any IdentityStorage
    let logger: Logger
    let now: @Sendable () -> Date

    /// How long after the first look a pair may still come: longer than any card takes for one.
    private static let timeout: TimeInterval = 600
    /// The number of key pairs that all processes make at a time on one token.
    private static let maximum = 16

    private struct Content: Codable {
        static let format = VersionedRecord<Self>(of: "a pending key pair", ifDamaged: "restore it from a backup")
        let id: Data
        var firstLook: Date?
    }

    /// A key pair that is written down. Has the lease of its record.
    struct Entry: Sendable {
        let id: [UInt8]
        fileprivate let name: String
        fileprivate let lease: RecordLease
        fileprivate let storage: any IdentityStorage
        fileprivate var firstLook: Date?

        /// Crosses it out.
        func end() throws(ProviderError) {
            try storage.updateRecord(named: name) { _ in SecretBytes(copying: []) }
            lease.isUnsettled = false
        }

        /// Crosses it out where nothing of it can come any more.
        /// - Parameter wasWhole: Whether both halves were there, and are destroyed.
        func hasBeenLookedFor(wasWhole: Bool, at now: Date) throws(ProviderError) {
            // The clock may have been set back.
            if let firstLook, firstLook <= now {
                if wasWhole || now.timeIntervalSince(firstLook) > PendingKeys.timeout { try end() }
            } else if wasWhole {
                try end()
            } else {
                try write(firstLook: now)
            }
        }

        fileprivate func write(firstLook: Date? = nil) throws(ProviderError) {
            let record = try Content.format.record(of: Content(id: Data(id), firstLook: firstLook))
            try storage.updateRecord(named: name) { _ in record }
        }
    }

    /// Writes a key pair down that is going to be made.
    /// - Throws: What the store says, and `unavailable` where too many are being made.
    func begin(_ id: [UInt8], on token: Slot.Identity) throws(ProviderError) -> Entry {
        do throws(ProviderError) {
            var place: (name: String, lease: RecordLease, firstLook: Date)?
            for name in names(for: token) {
                guard let lease = try storage.leaseRecord(named: name) else { continue }
                let known = try content(of: name)
                // With no other free record, the pair that was looked for longest loses its own.
                guard let firstLook = known == nil ? .distantPast : known?.firstLook,
                    firstLook < place?.firstLook ?? .distantFuture
                else { continue }
                place = (name, lease, firstLook)
                if known == nil { break }
            }
            if let place {
                let entry = Entry(id: id, name: place.name, lease: place.lease, storage: storage)
                try entry.write()
                return entry
            }
        } catch {
            throw ProviderError(
                error.code, "No key pair is made: this could not be recorded first. \(error.message)",
                underlying: error)
        }
        throw ProviderError(
            .unavailable,
            "\(Self.maximum) key pairs are being made on the token '\(DisplayText.visible(token.label))'; "
                + "try again when one is done.")
    }

    /// Returns the key pairs on a token of processes that have ended in the middle. Logs those that cannot be read.
    func orphans(on token: Slot.Identity) -> [Entry] {
        var orphans: [Entry] = []
        for name in names(for: token) {
            do throws(ProviderError) {
                // Read again under the lease: its former holder may just have ended.
                guard try content(of: name) != nil, let lease = try storage.leaseRecord(named: name),
                    let content = try content(of: name)
                else { continue }
                orphans.append(
                    Entry(
                        id: Array(content.id), name: name, lease: lease, storage: storage, firstLook: content.firstLook)
                )
            } catch {
                logger.warning(
                    "cannot read the record of a pending key pair, which may be left on the token",
                    metadata: ["reason": "\(error)"])
            }
        }
        return orphans
    }

    /// Crosses out a key pair whose process ended after another record named it, and before it could be crossed out.
    func keep(_ id: [UInt8], on token: Slot.Identity) throws(ProviderError) {
        for orphan in orphans(on: token) where orphan.id == id { try orphan.end() }
    }

    private func names(for token: Slot.Identity) -> [String] {
        (0..<Self.maximum).map { "\(token.recordName("keys"))-\($0)" }
    }

    private func content(of name: String) throws(ProviderError) -> Content? {
        try storage.record(named: name).map { record throws(ProviderError) in try Content.format.content(of: record) }
    }
}

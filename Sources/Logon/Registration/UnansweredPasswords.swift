import CertificateProviding
import FoundationEssentials

/// How often passwords were sent that the platform server has neither accepted nor rejected: the connection was closed, a gateway
/// answered, or the process was killed. They may be wrong, and each time may have counted.
struct UnansweredPasswords: Codable {
    private static let format = VersionedRecord<Self>(
        of: "passwords without an answer", ifDamaged: "it counts none then")
    /// As of rejected ones.
    private static let maximum = 4

    struct Tries: Codable {
        fileprivate let hash: Data
        /// How often it was sent.
        let count: Int
        /// When it was sent the last time.
        fileprivate(set) var last: Date

        /// When it may be sent again: once more at once, then after an hour, then once a day.
        var nextTry: Date {
            switch count {
            case ...1: last
            case 2: last + 3600
            default: last + 86400
            }
        }
    }

    private var key = SecretHashKey()
    private var all: [Tries] = []

    /// Reads the record. A damaged one has none.
    ///
    /// - Throws: `storeReadFailed` for a record of a newer version.
    init(_ record: SecretBytes?, now: Date = .distantFuture) throws(ProviderError) {
        guard let record, let former = try Self.format.undamagedContent(of: record) else { return }
        self = former
        // The clock was set back.
        for index in all.indices { all[index].last = min(all[index].last, now) }
    }

    var isEmpty: Bool { all.isEmpty }

    /// Adds a try. A password that was changed begins anew. A fifth one takes the place of the one that was sent longest ago, and
    /// has its tries: else passwords that are sent by turns would be sent without a limit.
    ///
    /// - Throws: What `check` throws about the tries so far.
    mutating func add(
        _ password: SecretBytes, at now: Date, _ check: (Tries) throws(ProviderError) -> Void
    ) throws(ProviderError) {
        var index = index(of: password)
        if index == nil, all.count >= Self.maximum { index = all.indices.min { all[$0].last < all[$1].last } }
        if let index { try check(all[index]) }
        let count = index.map { all.remove(at: $0).count } ?? 0
        all.append(Tries(hash: key.hash(password, for: ""), count: count + 1, last: now))
    }

    mutating func remove(_ password: SecretBytes) {
        if let index = index(of: password) { all.remove(at: index) }
    }

    private func index(of password: SecretBytes) -> Int? {
        all.firstIndex { key.isHash($0.hash, of: password, for: "") }
    }

    func encoded() throws(ProviderError) -> SecretBytes { try Self.format.record(of: self) }
}

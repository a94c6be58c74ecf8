import CertificateProviding
import Crypto
import FoundationEssentials

/// The outcomes of the PINs that were sent to the tokens with one serial number. Its stored form is JSON.
///
/// The hashes are HMAC-SHA256, which is fast: the seal around the record keeps them secret. A reader with its key can read this
/// user's files, where mostly the PIN itself is. A slow hash would not stop that reader either: there are only ten thousand or a
/// million PINs, and one hash must not delay a login.
///
/// Of an accepted PIN only one byte is stored: too little to find it with the few tries that a token permits. One other PIN in
/// 256 has the same byte, and less is checked before that one is sent.
struct PINRecord: Codable {
    private enum Standing: String, Codable {
        /// It was sent, or was about to be, and its answer is not known.
        case unanswered
        case rejected
    }

    private struct Entry: Codable {
        var standing: Standing
        var unanswered = PINRule.Unanswered(count: 0, last: .distantPast, wasCountLow: false)
        let token: Data
        let hash: Data
    }

    private struct Token: Codable {
        let name: Data
        var isCountShown = false
        /// The first byte of the hash of the PIN that it has accepted last.
        var accepted: UInt8?
        /// Changes with each login that was written down as accepted.
        var logins: UInt8 = 0
    }

    private static let format = VersionedRecord<Self>(
        of: "earlier PINs", ifDamaged: "restore it from a backup, or enter the PIN at a terminal")
    /// More are forgotten, the oldest first: a service that is restarted for weeks must not fill the store.
    private static let maximumCount = 32

    /// Of the hashes; random.
    private let key: Data
    private var tokens: [Token] = []
    /// The oldest first.
    private var entries: [Entry] = []

    init() { key = SymmetricKey(size: .bits256).withUnsafeBytes { Data($0) } }

    init(_ record: SecretBytes) throws(ProviderError) {
        do throws(ProviderError) {
            self = try Self.format.content(of: record)
            guard entries.allSatisfy({ $0.standing != .unanswered || $0.unanswered.count > 0 }) else {
                throw Self.format.damage
            }
        } catch {
            // Not as damage, after which a caller might go on.
            throw ProviderError(.storeReadFailed, "No configured PIN is sent to the token. \(error.message)")
        }
    }

    /// - Throws: `internal`.
    func encoded() throws(ProviderError) -> SecretBytes {
        var record = self
        (record.tokens, record.entries) = (tokens.suffix(Self.maximumCount), entries.suffix(Self.maximumCount))
        return try Self.format.record(of: record)
    }

    /// Returns the stored outcome of a PIN on a token.
    ///
    /// - Parameter isAccepted: Whether this process has seen that the token accepts it.
    func knowledge(of pin: SecretBytes, on token: Slot.Identity, isAccepted isSeen: Bool = false) -> PINRule.PIN {
        let (name, accepted) = (token.recordKey, isSeen || isAccepted(pin, by: token))
        // Compared in constant time, as all below.
        let hash = hash(of: pin)
        let known = entries.filter { hash == $0.hash }
        // The outcome on another token with this serial number counts if this token has none.
        let own = known.filter { $0.token == name }
        let counted = accepted ? own : known
        return PINRule.PIN(
            isRejected: counted.contains { $0.standing == .rejected },
            isAccepted: accepted,
            unanswered: counted.filter { $0.standing == .unanswered }.map(\.unanswered).max { $0.count < $1.count })
    }

    /// Whether the token was seen to show that it counts.
    func isCountShown(by token: Slot.Identity) -> Bool {
        tokens.contains { $0.name == token.recordKey && $0.isCountShown }
    }

    /// A number that is another one after each login that was written down as accepted by exactly this token.
    func logins(of token: Slot.Identity) -> UInt8 { tokens.first { $0.name == token.recordKey }?.logins ?? 0 }

    mutating func setCountShown(by token: Slot.Identity) { change(token) { $0.isCountShown = true } }

    /// Notes logins without an answer; `nil` where there are none.
    mutating func set(_ unanswered: PINRule.Unanswered?, for pin: SecretBytes, on token: Slot.Identity) {
        remove(pin, on: token, .unanswered)
        if let unanswered { append(pin, on: token, .unanswered, unanswered) }
    }

    mutating func reject(_ pin: SecretBytes, by token: Slot.Identity) {
        remove(pin, on: token)
        append(pin, on: token, .rejected)
        if isAccepted(pin, by: token) { change(token) { $0.accepted = nil } }
    }

    /// - Parameter isKept: Whether a byte of the PIN may be stored. A PIN that a person has typed is not stored, unless it is
    ///   in the record already.
    mutating func accept(_ pin: SecretBytes, by token: Slot.Identity, isKept: Bool) {
        remove(pin, on: token)
        let hash = hash(of: pin)
        if isKept || entries.contains(where: { hash == $0.hash }) {
            let tag = tag(of: pin)
            change(token) { token in
                token.accepted = tag
                token.logins &+= 1
            }
        }
    }

    /// Whether exactly this token has accepted the PIN last, as far as one byte shows.
    func isAccepted(_ pin: SecretBytes, by token: Slot.Identity) -> Bool {
        let (name, tag) = (token.recordKey, tag(of: pin))
        return tokens.contains { $0.name == name && $0.accepted != nil && $0.accepted == tag }
    }

    private mutating func change(_ token: Slot.Identity, _ change: (inout Token) -> Void) {
        let name = token.recordKey
        if !tokens.contains(where: { $0.name == name }) { tokens.append(Token(name: name)) }
        for index in tokens.indices where tokens[index].name == name { change(&tokens[index]) }
    }

    private mutating func remove(_ pin: SecretBytes, on token: Slot.Identity, _ standing: Standing? = nil) {
        let (hash, name) = (hash(of: pin), token.recordKey)
        entries.removeAll { entry in
            hash == entry.hash && name == entry.token && standing ?? entry.standing == entry.standing
        }
    }

    private mutating func append(
        _ pin: SecretBytes, on token: Slot.Identity, _ standing: Standing,
        _ unanswered: PINRule.Unanswered = .init(count: 0, last: .distantPast, wasCountLow: false)
    ) {
        let hash = Data(hash(of: pin))
        entries.append(Entry(standing: standing, unanswered: unanswered, token: token.recordKey, hash: hash))
    }

    private func hash(of pin: SecretBytes) -> HMAC<SHA256>.MAC {
        pin.withUnsafeBytes { HMAC<SHA256>.authenticationCode(for: $0, using: SymmetricKey(data: key)) }
    }

    private func tag(of pin: SecretBytes) -> UInt8? { hash(of: pin).withUnsafeBytes { $0.first } }
}

extension Slot.Identity {
    /// Which token it is, in a record.
    fileprivate var recordKey: Data {
        let text = [manufacturer, model, serial, label].joined(separator: "\0")
        return Data(SHA256.hash(data: Array(text.utf8)).prefix(16))
    }
}

import CertificateProviding
import Crypto
import FoundationEssentials

/// The outcomes of the PINs that were sent to the tokens with one serial number, in their stored form.
///
///     offset  size
///     0       1     format version, 2
///     1       32    key of the hashes, random
///     33      4     not used
///     37      1     n, the number of tokens
///     38      18·n  tokens: who it is (16), flags (1), first byte of the hash of the PIN that it has accepted last (1);
///                   the flags are 1 (it has accepted one), 2 (it shows its count), and 4 times a count of logins
///             60·m  PINs, the oldest first: standing (1), flags (1), unanswered logins (2), time of the last one (8,
///                   milliseconds since 1970), which token (16), hash (32)
///
/// Numbers are big-endian. Version 1 had no tokens: what it says of an accepted PIN holds for any token.
///
/// The hashes are HMAC-SHA256, which is fast: the seal around the record keeps them secret. A reader with its key can read this
/// user's files, where mostly the PIN itself is. A slow hash would not stop that reader either: there are only ten thousand or a
/// million PINs, and one hash must not delay a login.
///
/// Of an accepted PIN only one byte is stored: too little to find it with the few tries that a token permits. One other PIN in
/// 256 has the same byte, and less is checked before that one is sent.
struct PINRecord {
    private enum Standing: UInt8 {
        /// It was sent, or was about to be, and its answer is not known.
        case unanswered = 1
        case rejected = 3
    }

    private struct Entry {
        var standing: Standing
        var unanswered = PINRule.Unanswered(count: 0, last: .distantPast, wasCountLow: false)
        let token: [UInt8]
        let hash: [UInt8]
    }

    private struct Token {
        let name: [UInt8]
        var isCountShown = false
        var accepted: UInt8?
        /// Changes with each login that was written down as accepted.
        var logins: UInt8 = 0

        var flags: UInt8 { (accepted == nil ? 0 : 1) | (isCountShown ? 2 : 0) | logins << 2 }
    }

    private static let format: UInt8 = 2
    private static let keySize = 32
    private static let hashSize = 32
    private static let nameSize = 16
    private static let headerSize = 1 + keySize + 4 + 1
    private static let tokenSize = nameSize + 2
    private static let entrySize = 1 + 1 + 2 + 8 + nameSize + hashSize
    /// More are forgotten, the oldest first: a service that is restarted for weeks must not fill the store.
    private static let maximumCount = 32
    /// The token of version 1, which is any.
    private static let anyToken = [UInt8](repeating: 0, count: nameSize)

    private let key: [UInt8]
    private var tokens: [Token] = []
    private var entries: [Entry] = []

    init() { key = SymmetricKey(size: .bits256).withUnsafeBytes { Array($0) } }

    init(_ record: SecretBytes) throws(CertificateProviderError) {
        var bytes = record.withUnsafeBytes { Array($0) }[...]
        guard let format = bytes.first, format <= Self.format else {
            throw Self.unreadable("was written by a newer certprov; update certprov")
        }
        guard format > 0, bytes.count >= 1 + Self.keySize + 2 else { throw Self.unreadable("is damaged") }
        key = Array(bytes.dropFirst().prefix(Self.keySize))
        bytes = bytes.dropFirst(1 + Self.keySize)
        guard format > 1 else {
            try readVersion1(bytes)
            return
        }
        guard bytes.count >= 5 else { throw Self.unreadable("is damaged") }
        let count = Int(bytes[bytes.startIndex + 4])
        bytes = bytes.dropFirst(5)
        guard bytes.count >= count * Self.tokenSize, (bytes.count - count * Self.tokenSize) % Self.entrySize == 0 else {
            throw Self.unreadable("is damaged")
        }
        for _ in 0..<count {
            let fields = Array(bytes.prefix(Self.tokenSize))
            let flags = fields[Self.nameSize]
            tokens.append(
                Token(
                    name: Array(fields.prefix(Self.nameSize)), isCountShown: flags & 2 != 0,
                    accepted: flags & 1 != 0 ? fields[Self.nameSize + 1] : nil, logins: flags >> 2))
            bytes = bytes.dropFirst(Self.tokenSize)
        }
        while !bytes.isEmpty {
            let fields = Array(bytes.prefix(Self.entrySize))
            guard let standing = Standing(rawValue: fields[0]),
                standing != .unanswered || Self.number(fields[2..<4]) > 0
            else { throw Self.unreadable("is damaged") }
            entries.append(
                Entry(
                    standing: standing,
                    unanswered: .init(
                        count: UInt16(Self.number(fields[2..<4])),
                        last: Date(timeIntervalSince1970: TimeInterval(Self.number(fields[4..<12])) / 1000),
                        wasCountLow: fields[1] & 1 != 0),
                    token: Array(fields[12..<28]), hash: Array(fields[28...])))
            bytes = bytes.dropFirst(Self.entrySize)
        }
    }

    /// An accepted PIN's flag and byte, then the standing and the hash of each PIN.
    private mutating func readVersion1(_ bytes: ArraySlice<UInt8>) throws(CertificateProviderError) {
        let fields = Array(bytes)
        if fields[0] != 0 { tokens = [Token(name: Self.anyToken, accepted: fields[1])] }
        let size = 1 + Self.hashSize
        for start in stride(from: 2, to: fields.count, by: size) {
            // 1 was the first login without an answer, 2 the second.
            guard start + size <= fields.count, (1...3).contains(fields[start]) else {
                throw Self.unreadable("is damaged")
            }
            let standing = fields[start]
            entries.append(
                Entry(
                    standing: standing == 3 ? .rejected : .unanswered,
                    unanswered: .init(count: UInt16(standing), last: .distantPast, wasCountLow: false),
                    token: Self.anyToken, hash: Array(fields[(start + 1)..<(start + size)])))
        }
    }

    var encoded: SecretBytes {
        var bytes = [Self.format] + key + Self.bytes(0, 4)
        let tokens = tokens.suffix(Self.maximumCount)
        bytes.append(UInt8(tokens.count))
        for token in tokens {
            bytes += token.name
            bytes += [token.flags, token.accepted ?? 0]
        }
        for entry in entries.suffix(Self.maximumCount) {
            let milliseconds = min(max(0, entry.unanswered.last.timeIntervalSince1970 * 1000), TimeInterval(1 << 50))
            bytes += [entry.standing.rawValue, entry.unanswered.wasCountLow ? 1 : 0]
            bytes += Self.bytes(UInt64(entry.unanswered.count), 2)
            bytes += Self.bytes(UInt64(milliseconds), 8)
            bytes += entry.token
            bytes += entry.hash
        }
        return SecretBytes(copying: bytes)
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
            isAccepted: accepted || isAccepted(pin, by: Self.anyToken),
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
        for name in [token.recordKey, Self.anyToken] where isAccepted(pin, by: name) {
            tokens.indices.filter { tokens[$0].name == name }.forEach { tokens[$0].accepted = nil }
        }
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
    func isAccepted(_ pin: SecretBytes, by token: Slot.Identity) -> Bool { isAccepted(pin, by: token.recordKey) }

    private func isAccepted(_ pin: SecretBytes, by name: [UInt8]) -> Bool {
        let tag = tag(of: pin)
        return tokens.contains { $0.name == name && $0.accepted != nil && $0.accepted == tag }
    }

    private mutating func change(_ token: Slot.Identity, _ change: (inout Token) -> Void) {
        let name = token.recordKey
        if !tokens.contains(where: { $0.name == name }) { tokens.append(Token(name: name)) }
        for index in tokens.indices where tokens[index].name == name { change(&tokens[index]) }
    }

    /// Removes the outcome of a PIN on a token, and that of version 1 on any token.
    private mutating func remove(_ pin: SecretBytes, on token: Slot.Identity, _ standing: Standing? = nil) {
        let (hash, name) = (hash(of: pin), token.recordKey)
        entries.removeAll { entry in
            hash == entry.hash && [name, Self.anyToken].contains(entry.token)
                && standing ?? entry.standing == entry.standing
        }
    }

    private mutating func append(
        _ pin: SecretBytes, on token: Slot.Identity, _ standing: Standing,
        _ unanswered: PINRule.Unanswered = .init(count: 0, last: .distantPast, wasCountLow: false)
    ) {
        let hash = hash(of: pin).withUnsafeBytes { Array($0) }
        entries.append(Entry(standing: standing, unanswered: unanswered, token: token.recordKey, hash: hash))
    }

    private func hash(of pin: SecretBytes) -> HMAC<SHA256>.MAC {
        pin.withUnsafeBytes { HMAC<SHA256>.authenticationCode(for: $0, using: SymmetricKey(data: key)) }
    }

    private func tag(of pin: SecretBytes) -> UInt8? { hash(of: pin).withUnsafeBytes { $0.first } }

    private static func number(_ bytes: ArraySlice<UInt8>) -> UInt64 { bytes.reduce(0) { $0 << 8 | UInt64($1) } }

    private static func bytes(_ number: UInt64, _ count: Int) -> [UInt8] {
        withUnsafeBytes(of: number.bigEndian) { Array($0.suffix(count)) }
    }

    private static func unreadable(_ why: String) -> CertificateProviderError {
        CertificateProviderError(
            .storeReadFailed,
            "No configured PIN is sent to the token: the record of earlier PINs \(why).")
    }
}

extension Slot.Identity {
    /// Which token it is, in a record.
    fileprivate var recordKey: [UInt8] {
        let text = [manufacturer, model, serial, label].joined(separator: "\0")
        return Array(SHA256.hash(data: Array(text.utf8)).prefix(16))
    }
}

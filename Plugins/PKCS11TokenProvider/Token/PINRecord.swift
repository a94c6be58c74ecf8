import CertificateProviding
import Crypto

/// What became of the PINs that were sent to one token, as it rests in the identity store:
///
///     offset  size
///     0       1     format version, 1
///     1       32    key of the hashes, random
///     33      1     whether a PIN was accepted
///     34      1     the first byte of its hash
///     35      33·n  standing and hash of every other PIN, the oldest first
///
/// The hashes are HMAC-SHA256 and no slow ones: what keeps them secret is the seal around the record. Whoever has its
/// key reads this user's files, where mostly the PIN itself is, and goes through the ten thousand or million PINs that
/// there are in no time, whatever one hash costs within a login.
///
/// Of the PIN that is right only one byte is kept, too little to find it with the few tries that a token gives. For the
/// one other PIN in 256 that it is taken for, less is done before it is sent: see ``TriedPINs``.
struct PINRecord {
    enum Standing: UInt8 {
        /// It was sent, or was about to be, and its answer is not known.
        case trying = 1
        /// The same, for the last time.
        case retrying = 2
        case rejected = 3
    }

    private struct Entry {
        let standing: Standing
        let hash: [UInt8]
    }

    private static let format: UInt8 = 1
    private static let keySize = 32
    private static let hashSize = 32
    private static let headerSize = 1 + keySize + 2
    /// More are forgotten, the oldest first: a service that is restarted for weeks must not fill the store.
    private static let maximumCount = 32

    private let key: [UInt8]
    private var accepted: UInt8?
    private var entries: [Entry] = []

    init() { key = SymmetricKey(size: .bits256).withUnsafeBytes { Array($0) } }

    init(_ record: SecretBytes) throws(CertificateProviderError) {
        let bytes = record.withUnsafeBytes { Array($0) }
        guard let format = bytes.first, format <= Self.format else {
            throw Self.unreadable("was written by a newer certprov; update this one")
        }
        guard format == Self.format, bytes.count >= Self.headerSize else { throw Self.unreadable("is damaged") }
        key = Array(bytes[1...].prefix(Self.keySize))
        accepted = bytes[Self.keySize + 1] == 0 ? nil : bytes[Self.keySize + 2]
        let size = 1 + Self.hashSize
        for start in stride(from: Self.headerSize, to: bytes.count, by: size) {
            guard start + size <= bytes.count, let standing = Standing(rawValue: bytes[start]) else {
                throw Self.unreadable("is damaged")
            }
            entries.append(Entry(standing: standing, hash: Array(bytes[(start + 1)..<(start + size)])))
        }
    }

    var encoded: SecretBytes {
        let header = [Self.format] + key + [accepted == nil ? 0 : 1, accepted ?? 0]
        return SecretBytes(
            copying: header + entries.suffix(Self.maximumCount).flatMap { [$0.standing.rawValue] + $0.hash })
    }

    /// What is known of a PIN; `nil` when nothing is, or when it was accepted.
    func standing(of pin: SecretBytes) -> Standing? {
        // Compared in constant time, as all below.
        let hash = hash(of: pin)
        return entries.last { hash == $0.hash }?.standing
    }

    /// Whether the PIN is the one that the token has accepted last, as far as one byte shows.
    func isAccepted(_ pin: SecretBytes) -> Bool { accepted != nil && accepted == tag(of: pin) }

    mutating func set(_ standing: Standing?, for pin: SecretBytes) {
        let hash = hash(of: pin)
        entries.removeAll { hash == $0.hash }
        if let standing { entries.append(Entry(standing: standing, hash: hash.withUnsafeBytes { Array($0) })) }
        if standing == .rejected, isAccepted(pin) { accepted = nil }
    }

    mutating func accept(_ pin: SecretBytes) {
        set(nil, for: pin)
        accepted = tag(of: pin)
    }

    private func hash(of pin: SecretBytes) -> HMAC<SHA256>.MAC {
        pin.withUnsafeBytes { HMAC<SHA256>.authenticationCode(for: $0, using: SymmetricKey(data: key)) }
    }

    private func tag(of pin: SecretBytes) -> UInt8? { hash(of: pin).withUnsafeBytes { $0.first } }

    private static func unreadable(_ why: String) -> CertificateProviderError {
        CertificateProviderError(
            .storeReadFailed,
            "What is remembered of the token's PINs \(why), so that none is sent from a configuration.")
    }
}

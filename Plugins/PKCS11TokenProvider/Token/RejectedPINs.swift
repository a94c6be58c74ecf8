import CertificateProviding
import Crypto
import CryptoExtras
import FoundationEssentials
import Synchronization

/// The PINs that tokens have rejected: none of them is ever sent again by itself, not after a restart either.
///
/// What is kept is a salted and slow hash, sealed in the identity store: a wrong PIN is often nearly the right one.
final class RejectedPINs: Sendable {
    private let storage: any IdentityStorage
    private let lock = Mutex(())

    init(storage: any IdentityStorage) { self.storage = storage }

    /// A few thousand would do for the seal around it; this takes a hundredth of a second.
    private static let rounds = 50_000
    private static let saltSize = 16
    private static let hashSize = 32
    /// More are forgotten, the oldest first: a service that is restarted for weeks must not fill the store.
    private static let maximumCount = 32

    func contains(_ pin: SecretBytes, for token: Slot.Identity) throws(CertificateProviderError) -> Bool {
        try lock.withLock { _ throws(CertificateProviderError) in
            try entries(for: token).contains { $0.isHash(of: pin) }
        }
    }

    func insert(_ pin: SecretBytes, for token: Slot.Identity) throws(CertificateProviderError) {
        try lock.withLock { _ throws(CertificateProviderError) in
            let entries = try entries(for: token)
            guard !entries.contains(where: { $0.isHash(of: pin) }) else { return }
            try write(Array((entries + [Entry(pin)]).suffix(Self.maximumCount)), for: token)
        }
    }

    /// The PIN is right after all: somebody has changed the token's.
    func remove(_ pin: SecretBytes, for token: Slot.Identity) throws(CertificateProviderError) {
        try lock.withLock { _ throws(CertificateProviderError) in
            let entries = try entries(for: token)
            let others = entries.filter { !$0.isHash(of: pin) }
            if others.count < entries.count { try write(others, for: token) }
        }
    }

    private struct Entry {
        let salt, hash: [UInt8]

        init(salt: [UInt8], hash: [UInt8]) {
            self.salt = salt
            self.hash = hash
        }

        init(_ pin: SecretBytes) {
            let salt = SymmetricKey(size: .init(bitCount: RejectedPINs.saltSize * 8)).withUnsafeBytes { Array($0) }
            self.init(salt: salt, hash: Self.hash(pin, salt))
        }

        func isHash(of pin: SecretBytes) -> Bool {
            SecretBytes(copying: Self.hash(pin, salt)) == SecretBytes(copying: hash)
        }

        private static func hash(_ pin: SecretBytes, _ salt: [UInt8]) -> [UInt8] {
            // With one byte before it, so that the empty PIN is none to the library.
            let input = pin.withUnsafeBytes { [0] + Array($0) }
            let key = try? KDF.Insecure.PBKDF2.deriveKey(
                from: input, salt: salt, using: .sha256, outputByteCount: RejectedPINs.hashSize,
                unsafeUncheckedRounds: RejectedPINs.rounds)
            return key?.withUnsafeBytes { Array($0) } ?? []
        }
    }

    private static func name(of token: Slot.Identity) -> String {
        let text = [token.manufacturer, token.model, token.serial, token.label].joined(separator: "\0")
        return "rejected-pins-" + Array(SHA256.hash(data: Array(text.utf8))).hexEncoded.prefix(32)
    }

    private func entries(for token: Slot.Identity) throws(CertificateProviderError) -> [Entry] {
        guard let record = try storage.record(named: Self.name(of: token)) else { return [] }
        let bytes = record.withUnsafeBytes { Array($0) }
        let size = Self.saltSize + Self.hashSize
        return stride(from: 0, to: bytes.count - bytes.count % size, by: size).map { start in
            Entry(
                salt: Array(bytes[start..<(start + Self.saltSize)]),
                hash: Array(bytes[(start + Self.saltSize)..<(start + size)]))
        }
    }

    private func write(_ entries: [Entry], for token: Slot.Identity) throws(CertificateProviderError) {
        let bytes = entries.flatMap { $0.salt + $0.hash }
        try storage.setRecord(SecretBytes(copying: bytes), named: Self.name(of: token))
    }
}

import CertificateProviding
import Crypto
import CryptoExtras
import FoundationEssentials
import Glibc
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

    enum Standing { case free, reserved, rejected }

    /// Looks a PIN up, and writes down that it is going to be tried where nothing is known of it. Waits a little for
    /// another process that is trying it.
    ///
    /// - Returns: How it was before.
    func reserve(_ pin: SecretBytes, for token: Slot.Identity) throws(CertificateProviderError) -> Standing {
        // Made first: hashing takes long, and nobody else should write between looking and writing.
        let new = Entry(pin, isRejected: false)
        for _ in 0..<Self.patience {
            let standing = try lock.withLock { _ throws(CertificateProviderError) -> Standing in
                let entries = try entries(for: token)
                if let known = entries.last(where: { $0.isHash(of: pin) }) {
                    return known.isRejected ? .rejected : .reserved
                }
                try write(entries + [new], for: token)
                return .free
            }
            if standing != .reserved { return standing }
            usleep(50_000)
        }
        return .reserved
    }

    /// How often a PIN that is being tried is looked at, twenty times a second.
    private static let patience = 40

    func insert(_ pin: SecretBytes, for token: Slot.Identity) throws(CertificateProviderError) {
        try lock.withLock { _ throws(CertificateProviderError) in
            let others = try entries(for: token).filter { !$0.isHash(of: pin) }
            try write(others + [Entry(pin, isRejected: true)], for: token)
        }
    }

    /// The PIN is right, or was not looked at.
    func remove(_ pin: SecretBytes, for token: Slot.Identity) throws(CertificateProviderError) {
        try lock.withLock { _ throws(CertificateProviderError) in
            let entries = try entries(for: token)
            let others = entries.filter { !$0.isHash(of: pin) }
            if others.count < entries.count { try write(others, for: token) }
        }
    }

    private struct Entry {
        /// Otherwise it is being tried.
        let isRejected: Bool
        let salt, hash: [UInt8]

        init(isRejected: Bool, salt: [UInt8], hash: [UInt8]) {
            self.isRejected = isRejected
            self.salt = salt
            self.hash = hash
        }

        init(_ pin: SecretBytes, isRejected: Bool) {
            let salt = SymmetricKey(size: .init(bitCount: RejectedPINs.saltSize * 8)).withUnsafeBytes { Array($0) }
            self.init(isRejected: isRejected, salt: salt, hash: Self.hash(pin, salt))
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
        let size = 1 + Self.saltSize + Self.hashSize
        return stride(from: 0, to: bytes.count - bytes.count % size, by: size).map { start in
            Entry(
                isRejected: bytes[start] != 0, salt: Array(bytes[(start + 1)...].prefix(Self.saltSize)),
                hash: Array(bytes[(start + 1 + Self.saltSize)..<(start + size)]))
        }
    }

    private func write(_ entries: [Entry], for token: Slot.Identity) throws(CertificateProviderError) {
        let bytes = entries.suffix(Self.maximumCount).flatMap { entry -> [UInt8] in
            [entry.isRejected ? 1 : 0] + entry.salt + entry.hash
        }
        try storage.setRecord(SecretBytes(copying: bytes), named: Self.name(of: token))
    }
}

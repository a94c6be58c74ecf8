import CertificateProviding
import Crypto
import FoundationEssentials
import OpenSSLSupport

/// The cost of deriving a key from a passcode (scrypt, RFC 7914, section 2).
package struct ScryptParameters: Codable, Equatable, Sendable {
    /// N is two to the power of it.
    package var logarithmOfCost: UInt8
    package var blockSize: UInt8
    package var parallelism: UInt8

    package init(logarithmOfCost: UInt8, blockSize: UInt8, parallelism: UInt8) {
        (self.logarithmOfCost, self.blockSize, self.parallelism) = (logarithmOfCost, blockSize, parallelism)
    }

    /// 32 MiB, and some 0.2 s on a processor of 2023.
    package static let current = ScryptParameters(logarithmOfCost: 15, blockSize: 8, parallelism: 3)

    /// For a vault without a passcode. There is nothing to guess: each process that reads the file derives the key.
    static let withoutPasscode = ScryptParameters(logarithmOfCost: 1, blockSize: 1, parallelism: 1)

    var memory: Int { 128 * Int(blockSize) << Int(logarithmOfCost) }

    /// The cost of a guess.
    var work: Int { memory * Int(parallelism) }

    /// Whether a file may ask for it: at most 64 MiB, and four times the work of ``current``.
    var isPermitted: Bool {
        (1...16).contains(logarithmOfCost) && (1...16).contains(blockSize) && (1...16).contains(parallelism)
            && memory <= 64 << 20 && work <= 4 * Self.current.work
    }
}

/// The secrets that open a vault.
struct VaultSecrets: Sendable {
    /// `nil` for a vault without one.
    var passcode: SecretBytes? = nil
    /// The secret that a key store's key unwraps; `nil` for a vault without one.
    var factor: SecretBytes? = nil
}

/// The key of a vault, sealed with a passcode.
///
///     offset  size
///     0       8     "cprvault"
///     8       1     format version, 1
///     9       2     size of the header, big-endian: n
///     11      n     the header: JSON
///     11 + n  12    nonce
///     23 + n  32    the key, encrypted with AES-256-GCM
///     55 + n  16    tag
///     71 + n  32    SHA-256 of all before
///
/// Everything before the nonce and the application's id are authenticated. The key of the encryption is what scrypt makes of the
/// passcode; with a factor, HKDF-SHA256 (RFC 5869) of both, with the salt.
///
/// The digest shows a damaged file before a passcode is tried, which would count as a wrong one. It tells a guesser nothing that the
/// tag does not.
struct VaultKeyFile {
    private struct Header: Codable {
        let scrypt: ScryptParameters
        let salt: Data
        let hasNoPasscode: Bool
        /// In seconds since 1970.
        let passcodeSetAt: UInt64
        let identifier: Data
        let terms: VaultTerms
    }

    static let magic = Array("cprvault".utf8)
    static let version: UInt8 = 1
    private static let sealedSize = 60
    static let keySize = 32
    static let maximumSize = 1 << 15

    enum Failure: Error {
        case damaged
        case newerVersion(UInt8)
    }

    private let content: Header
    /// Everything before the nonce.
    private let header: [UInt8]
    private let box: [UInt8]

    var parameters: ScryptParameters { content.scrypt }
    var hasNoPasscode: Bool { content.hasNoPasscode }
    var passcodeSetAt: Date { Date(timeIntervalSince1970: Double(content.passcodeSetAt)) }
    /// Names the key, which stays the same when the passcode changes.
    var identifier: [UInt8] { Array(content.identifier) }
    var terms: VaultTerms { content.terms }

    /// Reads a file without decrypting it.
    init(_ bytes: [UInt8]) throws(Failure) {
        let start = Self.magic.count + 3
        guard bytes.count > start, bytes.starts(with: Self.magic) else { throw .damaged }
        let version = bytes[Self.magic.count]
        guard version <= Self.version else { throw .newerVersion(version) }
        let headerEnd = start + Int(bytes[start - 2]) << 8 + Int(bytes[start - 1])
        let end = headerEnd + Self.sealedSize
        guard version == Self.version, bytes.count == end + SHA256.byteCount, bytes.count <= Self.maximumSize,
            SHA256.hash(data: bytes[..<end]) == bytes[end...],
            let content = try? JSONDecoder().decode(Header.self, from: Data(bytes[start..<headerEnd])),
            content.scrypt.isPermitted, content.identifier.count == 16, content.passcodeSetAt < 1 << 40
        else { throw .damaged }
        (self.content, header, box) = (content, Array(bytes[..<headerEnd]), Array(bytes[headerEnd..<end]))
    }

    /// Returns the file for a key.
    static func seal(
        _ key: SecretBytes, identifier: [UInt8], with secrets: VaultSecrets, of application: String,
        _ parameters: ScryptParameters, _ terms: VaultTerms, setAt time: Date
    ) throws -> [UInt8] {
        let salt = SystemRandomNumberGenerator.bytes(16)
        let encoded = try JSONEncoder().encode(
            Header(
                scrypt: parameters, salt: Data(salt), hasNoPasscode: secrets.passcode == nil,
                passcodeSetAt: UInt64(max(0, min(time.timeIntervalSince1970, 1e12))), identifier: Data(identifier),
                terms: terms))
        guard encoded.count < maximumSize - 256 else { throw Failure.damaged }
        let header = magic + [version, UInt8(encoded.count >> 8), UInt8(encoded.count & 0xff)] + encoded
        let wrapping = try wrappingKey(for: secrets, salt: salt, parameters)
        let box = try key.withUnsafeBytes {
            try AES.GCM.seal($0, using: wrapping, authenticating: header + Array(application.utf8))
        }
        let content = header + Array(box.nonce) + Array(box.ciphertext) + Array(box.tag)
        return content + SHA256.hash(data: content)
    }

    /// Names the file's content, which a passcode is tried with.
    var digest: [UInt8] { Array(SHA256.hash(data: header + box)) }

    /// Returns the key; `nil` for a wrong passcode. Takes some hundred milliseconds.
    func open(with secrets: VaultSecrets, of application: String) throws -> SecretBytes? {
        let wrapping = try Self.wrappingKey(for: secrets, salt: Array(content.salt), parameters)
        let box = try AES.GCM.SealedBox(combined: box)
        // The tag is all that can be wrong.
        guard var key = try? AES.GCM.open(box, using: wrapping, authenticating: header + Array(application.utf8)) else {
            return nil
        }
        defer { key.resetBytes(in: 0..<key.count) }
        return SecretBytes(copying: key)
    }

    private static func wrappingKey(
        for secrets: VaultSecrets, salt: [UInt8], _ parameters: ScryptParameters
    ) throws -> SymmetricKey {
        let derived = try derive(secrets.passcode, salt: salt, parameters)
        guard let factor = secrets.factor else { return derived }
        var both = derived.withUnsafeBytes(Array.init)
        defer { both.wipe() }
        factor.withUnsafeBytes { both.append(contentsOf: $0) }
        return HKDF<SHA256>.deriveKey(
            inputKeyMaterial: SymmetricKey(data: both), salt: salt, info: Array("certprov vault".utf8),
            outputByteCount: keySize)
    }

    static func derive(
        _ passcode: SecretBytes?, salt: [UInt8], _ parameters: ScryptParameters
    ) throws -> SymmetricKey {
        let key = try OpenSSLLibrary().scrypt(
            password: passcode.map { .utf8($0) } ?? .absent, salt: salt,
            cost: 1 << Int(parameters.logarithmOfCost), blockSize: Int(parameters.blockSize),
            parallelism: Int(parameters.parallelism), keySize: keySize)
        return key.withUnsafeBytes { SymmetricKey(data: $0) }
    }
}

extension SystemRandomNumberGenerator {
    static func bytes(_ count: Int) -> [UInt8] {
        var generator = SystemRandomNumberGenerator()
        return (0..<count).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
    }
}

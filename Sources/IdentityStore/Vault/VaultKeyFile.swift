import CertificateProviding
import Crypto
import FoundationEssentials
import OpenSSLSupport

/// The cost of deriving a key from a passcode (scrypt, RFC 7914, section 2).
package struct ScryptParameters: Equatable, Sendable {
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
///     8       1     format version, 3
///     9       3     scrypt: the logarithm of N, r, p
///     12      1     1 for a vault without a passcode, else 0
///     13      8     when the passcode was set, seconds since 1970, big-endian
///     21      16    identifier of the key
///     37      16    salt
///     53      2     size of the terms, big-endian: n. Version 1 has none.
///     55      n     the terms: JSON
///     55 + n  12    nonce
///     67 + n  32    the key, encrypted with AES-256-GCM
///     99 + n  16    tag
///     115 + n 32    SHA-256 of all before. Versions 1 and 2 have none.
///
/// Everything before the nonce and the application's id are authenticated. The key of the encryption is what scrypt makes of the
/// passcode; with a factor, HKDF-SHA256 (RFC 5869) of both, with the salt.
///
/// The digest shows a damaged file before a passcode is tried, which would count as a wrong one. It tells a guesser nothing that the
/// tag does not.
struct VaultKeyFile {
    static let magic = Array("cprvault".utf8)
    static let version: UInt8 = 3
    private static let fixedSize = 53
    private static let sealedSize = 60
    static let keySize = 32
    static let maximumSize = 1 << 15

    enum Failure: Error {
        case damaged
        case newerVersion(UInt8)
    }

    let parameters: ScryptParameters
    let hasNoPasscode: Bool
    let passcodeSetAt: Date
    /// Names the key, which stays the same when the passcode changes.
    let identifier: [UInt8]
    let terms: VaultTerms
    private let header: [UInt8]
    private let box: [UInt8]

    /// Reads a file without decrypting it.
    init(_ bytes: [UInt8]) throws(Failure) {
        guard bytes.count > Self.magic.count, bytes.starts(with: Self.magic) else { throw .damaged }
        let version = bytes[Self.magic.count]
        guard version <= Self.version else { throw .newerVersion(version) }
        guard version > 0, bytes.count > Self.fixedSize + 2, bytes.count <= Self.maximumSize else { throw .damaged }
        let end = bytes.count - (version < 3 ? 0 : SHA256.byteCount)
        guard version < 3 || end > 0 && SHA256.hash(data: bytes[..<end]) == bytes[end...] else { throw .damaged }
        parameters = ScryptParameters(
            logarithmOfCost: bytes[9], blockSize: bytes[10], parallelism: bytes[11])
        let size = version == 1 ? 0 : 2 + Int(bytes[53]) << 8 + Int(bytes[54])
        let headerSize = Self.fixedSize + size
        guard end == headerSize + Self.sealedSize, parameters.isPermitted, bytes[12] <= 1 else {
            throw .damaged
        }
        if version == 1 {
            terms = VaultTerms()
        } else {
            guard let read = try? JSONDecoder().decode(VaultTerms.self, from: Data(bytes[55..<headerSize])) else {
                throw .damaged
            }
            terms = read
        }
        hasNoPasscode = bytes[12] == 1
        let seconds = bytes[13..<21].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        guard seconds < 1 << 40 else { throw .damaged }
        passcodeSetAt = Date(timeIntervalSince1970: Double(seconds))
        identifier = Array(bytes[21..<37])
        header = Array(bytes[..<headerSize])
        box = Array(bytes[headerSize..<end])
    }

    /// Returns the file for a key.
    static func seal(
        _ key: SecretBytes, identifier: [UInt8], with secrets: VaultSecrets, of application: String,
        _ parameters: ScryptParameters, _ terms: VaultTerms, setAt time: Date
    ) throws -> [UInt8] {
        var header = magic + [version, parameters.logarithmOfCost, parameters.blockSize, parameters.parallelism]
        header.append(secrets.passcode == nil ? 1 : 0)
        let seconds = UInt64(max(0, min(time.timeIntervalSince1970, 1e12)))
        header += withUnsafeBytes(of: seconds.bigEndian, Array.init)
        let salt = SystemRandomNumberGenerator.bytes(16)
        header += identifier + salt
        let encoded = try JSONEncoder().encode(terms)
        guard encoded.count < maximumSize - 256 else { throw Failure.damaged }
        header += [UInt8(encoded.count >> 8), UInt8(encoded.count & 0xff)] + encoded
        let wrapping = try wrappingKey(for: secrets, salt: salt[...], parameters)
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
        let wrapping = try Self.wrappingKey(for: secrets, salt: header[37..<53], parameters)
        let box = try AES.GCM.SealedBox(combined: box)
        // The tag is all that can be wrong.
        guard var key = try? AES.GCM.open(box, using: wrapping, authenticating: header + Array(application.utf8)) else {
            return nil
        }
        defer { key.resetBytes(in: 0..<key.count) }
        return SecretBytes(copying: key)
    }

    private static func wrappingKey(
        for secrets: VaultSecrets, salt: ArraySlice<UInt8>, _ parameters: ScryptParameters
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
        _ passcode: SecretBytes?, salt: ArraySlice<UInt8>, _ parameters: ScryptParameters
    ) throws -> SymmetricKey {
        let key = try OpenSSLLibrary().scrypt(
            password: passcode.map { .utf8($0) } ?? .absent, salt: Array(salt),
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

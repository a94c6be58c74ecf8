import CertificateProviding
import Crypto
import CryptoExtras
import FoundationEssentials

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

    var memory: Int { 128 * Int(blockSize) << Int(logarithmOfCost) }

    /// What a guess costs.
    var work: Int { memory * Int(parallelism) }

    /// Whether a file may ask for it: at most 64 MiB, and four times the work of ``current``.
    var isPermitted: Bool {
        (1...16).contains(logarithmOfCost) && (1...16).contains(blockSize) && (1...16).contains(parallelism)
            && memory <= 64 << 20 && work <= 4 * Self.current.work
    }
}

/// The key of a vault, sealed with a passcode.
///
///     offset  size
///     0       8     "cprvault"
///     8       1     format version, 1
///     9       3     scrypt: the logarithm of N, r, p
///     12      1     1 for a vault without a passcode, else 0
///     13      8     when the passcode was set, seconds since 1970, big-endian
///     21      16    identifier of the key
///     37      16    salt
///     53      12    nonce
///     65      32    the key, encrypted with AES-256-GCM
///     97      16    tag
///
/// Everything before the nonce and the application's id are authenticated.
struct VaultKeyFile {
    static let magic = Array("cprvault".utf8)
    static let version: UInt8 = 1
    private static let headerSize = 53
    static let size = 113
    static let keySize = 32

    enum Failure: Error {
        case damaged
        case newerVersion(UInt8)
    }

    let parameters: ScryptParameters
    let hasNoPasscode: Bool
    let passcodeSetAt: Date
    /// Names the key, which stays the same when the passcode changes.
    let identifier: [UInt8]
    private let bytes: [UInt8]

    /// Reads a file without decrypting it.
    init(_ bytes: [UInt8]) throws(Failure) {
        guard bytes.count > Self.magic.count, bytes.starts(with: Self.magic) else { throw .damaged }
        let version = bytes[Self.magic.count]
        guard version <= Self.version else { throw .newerVersion(version) }
        parameters = ScryptParameters(
            logarithmOfCost: bytes.count > 11 ? bytes[9] : 0, blockSize: bytes.count > 11 ? bytes[10] : 0,
            parallelism: bytes.count > 11 ? bytes[11] : 0)
        guard bytes.count == Self.size, version == Self.version, parameters.isPermitted, bytes[12] <= 1 else {
            throw .damaged
        }
        hasNoPasscode = bytes[12] == 1
        let seconds = bytes[13..<21].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        guard seconds < 1 << 40 else { throw .damaged }
        passcodeSetAt = Date(timeIntervalSince1970: Double(seconds))
        identifier = Array(bytes[21..<37])
        self.bytes = bytes
    }

    /// Returns the file for a key.
    ///
    /// - Parameter passcode: `nil` for a vault without one.
    static func seal(
        _ key: SecretBytes, identifier: [UInt8], with passcode: SecretBytes?, of application: String,
        _ parameters: ScryptParameters, setAt time: Date
    ) throws -> [UInt8] {
        var header = magic + [version, parameters.logarithmOfCost, parameters.blockSize, parameters.parallelism]
        header.append(passcode == nil ? 1 : 0)
        let seconds = UInt64(max(0, min(time.timeIntervalSince1970, 1e12)))
        header += withUnsafeBytes(of: seconds.bigEndian, Array.init)
        header += identifier + SystemRandomNumberGenerator.bytes(16)
        let wrapping = try derive(passcode, salt: header.suffix(16), parameters)
        let box = try key.withUnsafeBytes {
            try AES.GCM.seal($0, using: wrapping, authenticating: header + Array(application.utf8))
        }
        return header + Array(box.nonce) + Array(box.ciphertext) + Array(box.tag)
    }

    /// Returns the key; `nil` for a wrong passcode. Takes some hundred milliseconds.
    func open(with passcode: SecretBytes?, of application: String) throws -> SecretBytes? {
        let header = Array(bytes[..<Self.headerSize])
        let wrapping = try Self.derive(passcode, salt: header.suffix(16), parameters)
        let box = try AES.GCM.SealedBox(combined: bytes[Self.headerSize...])
        // The tag is all that can be wrong.
        guard var key = try? AES.GCM.open(box, using: wrapping, authenticating: header + Array(application.utf8)) else {
            return nil
        }
        defer { key.resetBytes(in: 0..<key.count) }
        return SecretBytes(copying: key)
    }

    private static func derive(
        _ passcode: SecretBytes?, salt: ArraySlice<UInt8>, _ parameters: ScryptParameters
    ) throws -> SymmetricKey {
        try (passcode ?? SecretBytes(copying: [])).withUnsafeBytes { passcode in
            try KDF.Scrypt.deriveKey(
                from: passcode, salt: salt, outputByteCount: keySize, rounds: 1 << Int(parameters.logarithmOfCost),
                blockSize: Int(parameters.blockSize), parallelism: Int(parameters.parallelism))
        }
    }
}

extension SystemRandomNumberGenerator {
    static func bytes(_ count: Int) -> [UInt8] {
        var generator = SystemRandomNumberGenerator()
        return (0..<count).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
    }
}

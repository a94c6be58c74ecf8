import Crypto
import CryptoExtras
import Foundation

/// A password's scrypt hash (RFC 7914) as `scrypt$14$8$1$SALT$KEY`: log2 of the rounds, block size, parallelism, and both in
/// base64.
struct PasswordHash: Sendable, CustomStringConvertible {
    static let maximumPasswordLength = 1024

    private let logRounds: Int
    private let blockSize: Int
    private let parallelism: Int
    private let salt: Data
    private let key: Data

    /// Blocks for some 50 ms, with 16 MiB of memory.
    init(of password: String) throws {
        (logRounds, blockSize, parallelism) = (14, 8, 1)
        salt = SymmetricKey(size: .bits128).withUnsafeBytes { Data($0) }
        key = try Self.derive(password, salt, logRounds, blockSize, parallelism, 32).withUnsafeBytes { Data($0) }
    }

    /// - Returns: nil if the text is not a hash, or needs more than 64 MiB.
    init?(_ text: String) {
        let fields = text.split(separator: "$", omittingEmptySubsequences: false).map(String.init)
        guard fields.count == 6, fields[0] == "scrypt",
            let logRounds = Int(fields[1]), (10...16).contains(logRounds),
            let blockSize = Int(fields[2]), blockSize == 8,
            let parallelism = Int(fields[3]), (1...4).contains(parallelism),
            let salt = Data(base64Encoded: fields[4]), (8...64).contains(salt.count),
            let key = Data(base64Encoded: fields[5]), (16...64).contains(key.count)
        else { return nil }
        (self.logRounds, self.blockSize, self.parallelism) = (logRounds, blockSize, parallelism)
        (self.salt, self.key) = (salt, key)
    }

    var description: String {
        "scrypt$\(logRounds)$\(blockSize)$\(parallelism)$\(salt.base64EncodedString())$\(key.base64EncodedString())"
    }

    /// Blocks as long as ``init(of:)``. Compares in constant time.
    func matches(_ password: String) throws -> Bool {
        guard Self.isAcceptable(password) else { return false }
        let derived = try Self.derive(password, salt, logRounds, blockSize, parallelism, key.count)
        return derived == SymmetricKey(data: key)
    }

    static func isAcceptable(_ password: String) -> Bool { (1...maximumPasswordLength).contains(password.utf8.count) }

    private static func derive(
        _ password: String, _ salt: Data, _ logRounds: Int, _ blockSize: Int, _ parallelism: Int, _ length: Int
    ) throws -> SymmetricKey {
        try KDF.Scrypt.deriveKey(
            from: Data(password.utf8), salt: salt, outputByteCount: length, rounds: 1 << logRounds,
            blockSize: blockSize, parallelism: parallelism)
    }
}

import CertificateProviding
import Crypto
import FoundationEssentials

/// The last secrets without a user that were wrong, passcodes say, so that they are not tried again: the format version and four
/// entries, of which the first may be unused (zeros): the cost of scrypt (the logarithm of N, r, p), 16 bytes of salt, and 32 bytes:
/// HMAC-SHA256 of what the secret was tried with, by the key that scrypt derives from the secret. It costs as much to guess from as
/// the vault's key, and the secret is a wrong one.
enum RejectedPasscodes {
    static let file = "rejected"
    private static let version: UInt8 = 1

    /// The number of entries, and the size of each.
    private static let (maximum, size) = (4, 51)

    /// The content without any. All contents have the same size.
    static let none = content([])

    private static func content(_ entries: [ArraySlice<UInt8>]) -> [UInt8] {
        let kept = entries.suffix(maximum)
        return [version] + [UInt8](repeating: 0, count: (maximum - kept.count) * size) + kept.joined()
    }

    /// Returns the content with one more.
    ///
    /// - Parameter object: What it was tried with. With another one, it may be right.
    static func content(
        _ passcode: SecretBytes, for object: [UInt8], _ parameters: ScryptParameters, after former: [UInt8]?
    ) throws -> [UInt8] {
        let salt = SystemRandomNumberGenerator.bytes(16)
        let cost = [parameters.logarithmOfCost, parameters.blockSize, parameters.parallelism]
        let derived = try VaultKeyFile.derive(passcode, salt: salt, parameters)
        let entry = cost + salt + Array(HMAC<SHA256>.authenticationCode(for: object, using: derived))
        return content(try (former.map(entries) ?? []) + [entry[...]])
    }

    /// Whether this passcode is among them. Damaged content has none.
    ///
    /// - Throws: `storeReadFailed` for content of a newer version.
    static func contains(_ passcode: SecretBytes, for object: [UInt8], _ content: [UInt8]) throws -> Bool {
        try entries(content).contains { try isEntry($0, of: passcode, for: object) }
    }

    /// Returns the content without this one.
    static func removing(_ passcode: SecretBytes, for object: [UInt8], from former: [UInt8]) throws -> [UInt8] {
        content(try entries(former).filter { try !isEntry($0, of: passcode, for: object) })
    }

    private static func isEntry(
        _ entry: ArraySlice<UInt8>, of passcode: SecretBytes, for object: [UInt8]
    ) throws -> Bool {
        let start = entry.startIndex
        let parameters = ScryptParameters(
            logarithmOfCost: entry[start], blockSize: entry[start + 1], parallelism: entry[start + 2])
        guard parameters.isPermitted else { return false }
        let derived = try VaultKeyFile.derive(passcode, salt: Array(entry[(start + 3)..<(start + 19)]), parameters)
        return HMAC<SHA256>.isValidAuthenticationCode(entry[(start + 19)...], authenticating: object, using: derived)
    }

    private static func entries(_ content: [UInt8]) throws(ProviderError) -> [ArraySlice<UInt8>] {
        if let version = content.first, version > Self.version {
            throw ProviderError(
                .storeReadFailed, "The record of rejected passcodes was written by a newer certprov; update certprov.")
        }
        guard content.first == version, (content.count - 1).isMultiple(of: size) else { return [] }
        return stride(from: 1, to: content.count, by: size).map { content[$0..<($0 + size)] }
            .filter { $0[$0.startIndex] != 0 }
    }
}

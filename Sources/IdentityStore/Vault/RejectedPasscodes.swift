package import CertificateProviding
import Crypto
import FoundationEssentials

/// The last secrets without a user that were wrong, passcodes say, so that they are not tried again: the format version and, for
/// each, the cost of scrypt (the logarithm of N, r, p), 16 bytes of salt and 32 bytes that are derived from the secret. It costs as
/// much to guess from as the vault's key, and the secret is a wrong one.
enum RejectedPasscodes {
    static let file = "rejected"
    fileprivate static let version: UInt8 = 1

    /// How many are kept, and the size of each.
    private static let (maximum, size) = (4, 51)

    /// Returns the content with one more.
    static func content(
        _ passcode: SecretBytes, _ parameters: ScryptParameters, after former: [UInt8]?
    ) throws -> [UInt8] {
        let salt = SystemRandomNumberGenerator.bytes(16)
        let cost = [parameters.logarithmOfCost, parameters.blockSize, parameters.parallelism]
        let derived = try VaultKeyFile.derive(passcode, salt: salt[...], parameters)
        let kept = try former.map { try entries($0).suffix(maximum - 1).flatMap { Array($0) } } ?? []
        return [version] + kept + cost + salt + derived.withUnsafeBytes { Array($0) }
    }

    /// Whether this passcode is among them. Damaged content has none.
    ///
    /// - Throws: `storeReadFailed` for content of a newer version.
    static func contains(_ passcode: SecretBytes, _ content: [UInt8]) throws -> Bool {
        for entry in try entries(content) {
            let start = entry.startIndex
            let parameters = ScryptParameters(
                logarithmOfCost: entry[start], blockSize: entry[start + 1], parallelism: entry[start + 2])
            guard parameters.isPermitted else { continue }
            let derived = try VaultKeyFile.derive(passcode, salt: entry[(start + 3)..<(start + 19)], parameters)
            if derived == SymmetricKey(data: entry[(start + 19)...]) { return true }
        }
        return false
    }

    private static func entries(_ content: [UInt8]) throws(CertificateProviderError) -> [ArraySlice<UInt8>] {
        if let version = content.first, version > Self.version {
            throw CertificateProviderError(
                .storeReadFailed, "The record of rejected passwords was written by a newer certprov; update certprov.")
        }
        guard content.first == version, (content.count - 1).isMultiple(of: size) else { return [] }
        return stride(from: 1, to: content.count, by: size).map { content[$0..<($0 + size)] }
    }
}

extension DataVault {
    /// A record of rejected secrets that has none.
    package static let nothingRejected = SecretBytes(copying: [RejectedPasscodes.version])

    /// Returns what shows whether a secret is one of the last four that were rejected, with one more. Takes some hundred
    /// milliseconds.
    ///
    /// - Throws: `storeReadFailed` for a record of a newer version; `internal`.
    package func noting(
        rejected secret: SecretBytes, in former: SecretBytes?
    ) throws(CertificateProviderError) -> SecretBytes {
        do {
            return SecretBytes(
                copying: try RejectedPasscodes.content(
                    secret, parameters, after: former?.withUnsafeBytes { Array($0) }))
        } catch let error as CertificateProviderError { throw error } catch {
            throw CertificateProviderError(.internal, "A rejected password cannot be noted.", underlying: error)
        }
    }

    /// Whether a secret is one of those. Takes some hundred milliseconds for each.
    ///
    /// - Throws: `storeReadFailed` for a record of a newer version; `internal`.
    package func isRejected(
        _ secret: SecretBytes, by content: SecretBytes
    ) throws(CertificateProviderError) -> Bool {
        do {
            return try RejectedPasscodes.contains(secret, content.withUnsafeBytes { Array($0) })
        } catch let error as CertificateProviderError { throw error } catch {
            throw CertificateProviderError(.internal, "A password cannot be compared.", underlying: error)
        }
    }
}

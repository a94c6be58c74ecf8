import CertificateProviding
import OpenSSLSupport
import SwiftASN1

/// Limits on the work that a file can cause. Each is checked before the work is done.
struct WorkBudget {
    /// The number of keys. The time of pairing and of chain building grows with keys times certificates.
    static let maximumKeys = 256
    static let maximumCertificates = 4096
    /// The file size in bytes, ten times that of a key store with a whole trust programme.
    static let maximumFileSize = 4 << 20
    /// The depth of SafeContents inside SafeContents. Known tools nest them at most once.
    static let maximumNesting = 8

    private var derivations = DerivationBudget()
    private var keys = 0
    private var certificates = 0

    /// Spends the iterations of one key derivation.
    /// - Throws: `malformedData` if they exceed the limit, alone or with those before.
    mutating func spend(_ iterations: Int) throws(ProviderError) { try derivations.spend(iterations) }

    /// Counts one more key, usable or not.
    mutating func spendOnKey() throws(ProviderError) {
        keys += 1
        guard keys <= Self.maximumKeys else {
            throw ProviderError(
                .malformedData, "The file has more than \(Self.maximumKeys) private keys; split it into several files.")
        }
    }

    /// Counts one more certificate, readable or not.
    mutating func spendOnCertificate() throws(ProviderError) {
        certificates += 1
        guard certificates <= Self.maximumCertificates else {
            throw ProviderError(
                .malformedData,
                "The file has more than \(Self.maximumCertificates) certificates; export it again with fewer.")
        }
    }

    /// Spends the iterations of a password-based encryption algorithm.
    mutating func spend(onDecryptingWith algorithmIdentifier: ASN1Node) throws {
        try derivations.spend(onDecryptingWith: algorithmIdentifier)
    }
}

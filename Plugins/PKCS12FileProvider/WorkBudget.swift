import CertificateProviding
import SwiftASN1

/// Limits on the work that a file can cause. Each is checked before the work is done.
struct WorkBudget {
    /// The iterations of all key derivations together, some seconds on one core. Firefox uses up to a million for each
    /// key and certificate that it exports.
    static let maximumIterations = 30_000_000
    /// The number of keys. The time of pairing and of chain building grows with keys times certificates.
    static let maximumKeys = 256
    static let maximumCertificates = 4096
    /// The file size in bytes, ten times that of a key store with a whole trust programme.
    static let maximumFileSize = 4 << 20
    /// The depth of SafeContents inside SafeContents. Known tools nest them at most once.
    static let maximumNesting = 8

    private var remaining = maximumIterations
    private var keys = 0
    private var certificates = 0

    /// Spends the iterations of one key derivation.
    /// - Throws: `malformedData` if they exceed the limit, alone or with those before.
    mutating func spend(_ iterations: Int) throws(CertificateProviderError) {
        guard iterations > 0 else {
            throw CertificateProviderError(
                .malformedData,
                "The file specifies \(iterations) iterations of key derivation; export it again with at least 1."
            )
        }
        guard iterations <= remaining else {
            throw CertificateProviderError(
                .malformedData,
                "The file requires more than \(Self.maximumIterations) iterations of key derivation; export it again "
                    + "with fewer.")
        }
        remaining -= iterations
    }

    /// Counts one more key, usable or not.
    mutating func spendOnKey() throws(CertificateProviderError) {
        keys += 1
        guard keys <= Self.maximumKeys else {
            throw CertificateProviderError(
                .malformedData, "The file has more than \(Self.maximumKeys) private keys; split it into several files.")
        }
    }

    /// Counts one more certificate, readable or not.
    mutating func spendOnCertificate() throws(CertificateProviderError) {
        certificates += 1
        guard certificates <= Self.maximumCertificates else {
            throw CertificateProviderError(
                .malformedData,
                "The file has more than \(Self.maximumCertificates) certificates; export it again with fewer.")
        }
    }

    /// Spends the iterations of a password-based encryption algorithm.
    mutating func spend(onDecryptingWith algorithmIdentifier: ASN1Node) throws {
        let algorithm = try algorithmIdentifier.algorithm()
        guard algorithm == .pbes2 else {
            // PBES1 and the PKCS#12 PBEs: SEQUENCE { salt, iterations }. One derivation each for key and IV.
            let iterations = try? algorithmIdentifier.algorithmParameters { nodes in
                _ = try nodes.required("salt")
                return try Int(berEncoded: &nodes)
            }
            // Another shape is another algorithm, which OpenSSL will then not know.
            if let iterations { try spend(iterations) }
            return
        }
        let derivation = try algorithmIdentifier.algorithmParameters { try $0.required("keyDerivationFunc") }
        switch try derivation.algorithm() {
        case .pbkdf2:
            try spend(
                try derivation.algorithmParameters { nodes in
                    _ = try nodes.required("salt")
                    return try Int(berEncoded: &nodes)
                })
        case .scrypt:
            let (cost, blockSize, parallelization) = try derivation.algorithmParameters { nodes in
                _ = try nodes.required("salt")
                return (try Int(berEncoded: &nodes), try Int(berEncoded: &nodes), try Int(berEncoded: &nodes))
            }
            // N·r·p blocks of 128 bytes, each worth some four hashes; OpenSSL itself bounds the memory at 32 MiB.
            let product = [cost, blockSize, parallelization, 4].reduce(1) { product, factor in
                let (next, overflow) = product.multipliedReportingOverflow(by: factor)
                return overflow || factor <= 0 ? .max : next
            }
            try spend(product)
        default:
            break
        }
    }
}

import CertificateProviding
import SwiftASN1

/// Bounds what a file can make us do, before any of it is done.
struct WorkBudget {
    /// Ten times the largest that is met in real files; a few seconds of one core.
    static let maximumIterations = 6_000_000
    /// A keystore of a whole trust programme is a tenth of this.
    static let maximumFileSize = 4 << 20
    /// Safe contents inside safe contents: nobody nests them more than once.
    static let maximumNesting = 8

    private var remaining = maximumIterations

    /// Takes the cost of one key derivation, in iterations of its hash.
    /// - Throws: `malformedData` when the file asks for more than it may, in one step or all together.
    mutating func spend(_ iterations: Int) throws(CertificateProviderError) {
        guard iterations > 0 else {
            throw CertificateProviderError(
                .malformedData, "The file asks for \(iterations) iterations of key derivation; it takes at least one.")
        }
        guard iterations <= remaining else {
            throw CertificateProviderError(
                .malformedData,
                """
                The file asks for more than \(Self.maximumIterations) iterations of key derivation, \
                which no honest writer does; write it anew with fewer.
                """)
        }
        remaining -= iterations
    }

    /// Takes the cost of decrypting with a password-based encryption algorithm.
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
            // N·r·p blocks of 128 bytes; OpenSSL itself bounds the memory at 32 MiB.
            let (first, overflow) = cost.multipliedReportingOverflow(by: blockSize)
            let (product, overflowAgain) = first.multipliedReportingOverflow(by: parallelization)
            try spend(overflow || overflowAgain || min(cost, blockSize, parallelization) <= 0 ? .max : product)
        default:
            break
        }
    }
}

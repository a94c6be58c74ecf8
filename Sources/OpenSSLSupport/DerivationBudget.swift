package import CertificateProviding
package import SwiftASN1

/// A limit on the work of key derivations from passwords. It is checked before the work is done.
package struct DerivationBudget {
    /// The iterations of all key derivations together, some seconds on one core. Firefox uses up to a million for each
    /// key and certificate that it exports.
    package static let maximumIterations = 30_000_000

    private var remaining = maximumIterations

    package init() {}

    /// Spends the iterations of one key derivation.
    /// - Throws: `malformedData` if they exceed the limit, alone or with those before.
    package mutating func spend(_ iterations: Int) throws(ProviderError) {
        guard iterations > 0 else {
            throw ProviderError(
                .malformedData,
                "The file specifies \(iterations) iterations of key derivation; export it again with at least 1."
            )
        }
        guard iterations <= remaining else {
            throw ProviderError(
                .malformedData,
                "The file requires more than \(Self.maximumIterations) iterations of key derivation; export it again "
                    + "with fewer.")
        }
        remaining -= iterations
    }

    /// Spends the iterations of a password-based encryption algorithm.
    package mutating func spend(onDecryptingWith algorithmIdentifier: ASN1Node) throws {
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

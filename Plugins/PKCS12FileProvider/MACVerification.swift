import CertificateProviding
import OpenSSLSupport
import SwiftASN1

extension MacData {
    /// Whether this is the MAC of `content` under `password`. Blocks while the key is derived.
    ///
    /// - Throws: `unsupportedAlgorithm`, or `malformedData` for invalid parameters.
    func isValid(
        for content: [UInt8], password: PKCS12Password, library: OpenSSLLibrary, budget: inout WorkBudget
    ) throws -> Bool {
        let key: SecretBytes
        let digest: String
        if algorithm == .pbmac1 {
            let parameters = try PBMAC1Parameters(algorithmIdentifier)
            try budget.spend(parameters.iterations)
            digest = parameters.digest
            key = try supported {
                () throws(OpenSSLError) in
                try library.pbkdf2(
                    password: password, salt: parameters.salt, iterations: parameters.iterations,
                    keySize: parameters.keySize, digest: parameters.derivationDigest)
            }
        } else {
            try budget.spend(iterations)
            digest = String(describing: algorithm)
            key = try supported {
                () throws(OpenSSLError) in
                try library.pkcs12MACKey(password: password, salt: salt, iterations: iterations, digest: digest)
            }
        }
        let expected = try supported { () throws(OpenSSLError) in try library.hmac(content, key: key, digest: digest) }
        return SecretBytes(copying: expected) == SecretBytes(copying: value)
    }

    private func supported<T>(_ body: () throws(OpenSSLError) -> T) throws -> T {
        do throws(OpenSSLError) { return try body() } catch {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The file's integrity is protected with \(OpenSSLLibrary.name(ofOID: "\(algorithm)")), which is not supported; export "
                    + "the file again with HMAC and SHA-256.",
                underlying: error)
        }
    }
}

/// The parameters of PBMAC1 (RFC 8018, appendix A.5) as PKCS#12 uses it (RFC 9879).
///
/// OpenSSL supports PBMAC1 in PKCS#12 from 3.4 on only, so it is composed here of OpenSSL's PBKDF2 and HMAC.
private struct PBMAC1Parameters {
    let salt: [UInt8]
    let iterations: Int
    let keySize: Int
    let derivationDigest: String
    let digest: String

    /// The permitted key sizes, in bytes. A shorter key could be guessed without the password.
    private static let keySizes = 20...64

    init(_ algorithmIdentifier: ASN1Node) throws {
        let (derivation, authentication) = try algorithmIdentifier.algorithmParameters { nodes in
            (try nodes.required("keyDerivationFunc"), try nodes.required("messageAuthScheme"))
        }
        guard try derivation.algorithm() == .pbkdf2 else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "PBMAC1 with the key derivation \(OpenSSLLibrary.name(ofOID: "\(try derivation.algorithm())")) is not supported; export the file again with PBKDF2."
            )
        }
        let (salt, iterations, keySize, prf) = try derivation.algorithmParameters { nodes in
            let salt = try ASN1OctetString(berEncoded: &nodes)
            let iterations = try Int(berEncoded: &nodes)
            // Optional in PBKDF2, required here (RFC 9879, section 5).
            let keySize = try Int(berEncoded: &nodes)
            return (Array(salt.bytes), iterations, keySize, try nodes.next()?.algorithm())
        }
        guard Self.keySizes.contains(keySize) else {
            throw ProviderError(
                .malformedData,
                "The PBMAC1 key has \(keySize) bytes; export the file again with a key of \(Self.keySizes.lowerBound) to "
                    + "\(Self.keySizes.upperBound) bytes."
            )
        }
        self.salt = salt
        self.iterations = iterations
        self.keySize = keySize
        self.derivationDigest = try Self.digest(ofHMAC: prf ?? .hmacWithSHA1)
        self.digest = try Self.digest(ofHMAC: try authentication.algorithm())
    }

    private static func digest(ofHMAC algorithm: ASN1ObjectIdentifier) throws -> String {
        guard let digest = digests[algorithm] else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "PBMAC1 with \(OpenSSLLibrary.name(ofOID: "\(algorithm)")) is not supported; export the file again with HMAC and SHA-256."
            )
        }
        return digest
    }

    private static let digests: [ASN1ObjectIdentifier: String] = [
        .hmacWithSHA1: "SHA1", [1, 2, 840, 113549, 2, 8]: "SHA224", [1, 2, 840, 113549, 2, 9]: "SHA256",
        [1, 2, 840, 113549, 2, 10]: "SHA384", [1, 2, 840, 113549, 2, 11]: "SHA512",
        [1, 2, 840, 113549, 2, 12]: "SHA512-224", [1, 2, 840, 113549, 2, 13]: "SHA512-256",
    ]
}

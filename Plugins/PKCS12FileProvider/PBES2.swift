import CertificateProviding
import Crypto
import CryptoExtras
import FoundationEssentials
import OpenSSLSupport
import SwiftASN1

/// PBES2 with PBKDF2 and AES-CBC (RFC 8018, section 6.2), the scheme that current tools use.
///
/// Uses swift-crypto, which derives keys in less than half of OpenSSL's time; key derivation is most of the time of
/// reading a file. OpenSSL decrypts all other schemes.
struct PBES2 {
    private let salt: [UInt8]
    private let iterations: Int
    private let hash: KDF.Insecure.PBKDF2.HashFunction
    private let keySize: Int
    private let initializationVector: AES._CBC.IV

    /// Reads an `AlgorithmIdentifier`. Returns `nil` for another scheme, and for unusual parameters.
    init?(_ algorithmIdentifier: ASN1Node) {
        guard (try? algorithmIdentifier.algorithm()) == .pbes2, let parameters = try? Self(parsing: algorithmIdentifier)
        else { return nil }
        self = parameters
    }

    private init(parsing algorithmIdentifier: ASN1Node) throws {
        let (derivation, encryption) = try algorithmIdentifier.algorithmParameters { nodes in
            (try nodes.required("keyDerivationFunc"), try nodes.required("encryptionScheme"))
        }
        let (salt, iterations, explicitKeySize, function) = try derivation.algorithmParameters { nodes in
            let salt = try ASN1OctetString(berEncoded: &nodes)
            let iterations = try Int(berEncoded: &nodes)
            var next = nodes.next()
            var keySize: Int?
            if let node = next, node.identifier == .integer {
                keySize = try Int(berEncoded: node)
                next = nodes.next()
            }
            return (Array(salt.bytes), iterations, keySize, try next?.algorithm() ?? .hmacWithSHA1)
        }
        let vector = try BER.sequence(encryption, identifier: .sequence) { nodes in
            _ = try nodes.required("algorithm")
            return try ASN1OctetString(berEncoded: &nodes)
        }
        guard try derivation.algorithm() == .pbkdf2, !salt.isEmpty, (1...Int(Int32.max)).contains(iterations),
            let hash = Self.hashes[function], let keySize = Self.keySizes[try encryption.algorithm()],
            explicitKeySize == nil || explicitKeySize == keySize
        else { throw ASN1Error.invalidASN1Object(reason: "not PBKDF2 with HMAC and AES-CBC") }
        self.salt = salt
        self.iterations = iterations
        self.hash = hash
        self.keySize = keySize
        self.initializationVector = try AES._CBC.IV(ivBytes: vector.bytes)
    }

    /// Returns the plaintext, or `nil` if the padding is wrong, as with a wrong key. Blocks while the key is derived;
    /// the caller must have bounded the iterations.
    ///
    /// - Parameter password: Must not be empty.
    func decrypt(_ ciphertext: [UInt8], password: SecretBytes) -> SecretBytes? {
        let key = password.withUnsafeBytes { password in
            try? KDF.Insecure.PBKDF2.deriveKey(
                from: password.bindMemory(to: UInt8.self), salt: salt, using: hash, outputByteCount: keySize,
                unsafeUncheckedRounds: iterations)
        }
        guard let key, var plain = try? AES._CBC.decrypt(ciphertext, using: key, iv: initializationVector) else {
            return nil
        }
        defer { plain.resetBytes(in: plain.startIndex..<plain.endIndex) }
        return SecretBytes(copying: plain)
    }

    private static let hashes: [ASN1ObjectIdentifier: KDF.Insecure.PBKDF2.HashFunction] = [
        .hmacWithSHA1: .insecureSHA1, [1, 2, 840, 113549, 2, 8]: .insecureSHA224, [1, 2, 840, 113549, 2, 9]: .sha256,
        [1, 2, 840, 113549, 2, 10]: .sha384, [1, 2, 840, 113549, 2, 11]: .sha512,
    ]

    /// The key sizes of AES-128, -192 and -256 in CBC mode, in bytes.
    private static let keySizes: [ASN1ObjectIdentifier: Int] = [
        [2, 16, 840, 1, 101, 3, 4, 1, 2]: 16, [2, 16, 840, 1, 101, 3, 4, 1, 22]: 24,
        [2, 16, 840, 1, 101, 3, 4, 1, 42]: 32,
    ]
}

import Crypto
import CryptoExtras

extension SoftwareKey {
    /// Generates a key pair. RSA takes a second or more and blocks the caller.
    ///
    /// - Throws: `internal`.
    public static func generate(
        _ type: KeyType, location: KeyLocation
    ) throws(ProviderError) -> SoftwareKey {
        do {
            return try SoftwareKey(pkcs8: pkcs8(type), location: location)
        } catch let error as ProviderError {
            throw error
        } catch {
            throw ProviderError(.internal, "A key of type \(type) cannot be generated.", underlying: error)
        }
    }

    private static func pkcs8(_ type: KeyType) throws -> SecretBytes {
        switch type {
        case .p256: SecretBytes(copying: P256.Signing.PrivateKey().derRepresentation)
        case .p384: SecretBytes(copying: P384.Signing.PrivateKey().derRepresentation)
        case .p521: SecretBytes(copying: P521.Signing.PrivateKey().derRepresentation)
        case .ed25519:
            // OneAsymmetricKey of version 0 (RFC 8410, section 7), which ends in the key.
            SecretBytes(
                copying: [0x30, 46, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 34, 4, 32]
                    + Array(Curve25519.Signing.PrivateKey().rawRepresentation))
        default: SecretBytes(copying: try rsa(type).pkcs8DERRepresentation)
        }
    }

    private static func rsa(_ type: KeyType) throws -> _RSA.Signing.PrivateKey {
        switch type {
        case .rsa4096: try .init(keySize: .bits4096)
        case .rsa3072: try .init(keySize: .bits3072)
        default: try .init(keySize: .bits2048)
        }
    }
}

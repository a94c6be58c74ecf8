import CP11Kit
import CertificateProviding

/// The attributes for a new key pair of one type.
struct KeyPairTemplate {
    let mechanism: CK_MECHANISM_TYPE
    let publicKey, privateKey: [Attribute]

    /// The mechanisms to ask, the one that says most first: modules refuse attributes that they do not know.
    /// - Parameters:
    ///   - forbidsDecryption: Whether the longer ones forbid it where `use` does not want it.
    ///   - allowed: The mechanisms to which the first one restricts the private key.
    static func all(
        _ type: KeyType, id: [UInt8], label: String, for use: KeyUse, forbidsDecryption: Bool = true,
        allowing allowed: [CK_MECHANISM_TYPE]? = nil
    ) -> [KeyPairTemplate] {
        let name = [Attribute(CKA_ID, id), Attribute(CKA_LABEL, Array(label.utf8)), Attribute(CKA_TOKEN, true)]
        let decrypts = !use.decryptionSchemes.isEmpty
        let publicKey =
            name + [Attribute(CKA_PRIVATE, false), Attribute(CKA_VERIFY, true)]
            + (decrypts ? [Attribute(CKA_ENCRYPT, true)] : [])
        let privateKey =
            name + [
                Attribute(CKA_PRIVATE, true), Attribute(CKA_SENSITIVE, true), Attribute(CKA_EXTRACTABLE, false),
                Attribute(CKA_SIGN, true),
            ] + (decrypts ? [Attribute(CKA_DECRYPT, true)] : [])
        // Some modules permit every use of a key that the template does not forbid.
        let decryption = decrypts || !forbidsDecryption ? [] : [CKA_DECRYPT]
        let forbidden = (decryption + [CKA_UNWRAP, CKA_DERIVE, CKA_SIGN_RECOVER]).map { Attribute($0, false) }
        let restricted = allowed.map { privateKey + forbidden + [Attribute(CKA_ALLOWED_MECHANISMS, numbers: $0)] }
        let kind = Kind(type)
        return kind.parameters.flatMap { parameters in
            ([restricted].compactMap(\.self) + [privateKey + forbidden, privateKey]).map {
                KeyPairTemplate(
                    mechanism: kind.mechanism,
                    publicKey: publicKey + [Attribute(CKA_KEY_TYPE, kind.keyType)] + parameters, privateKey: $0)
            }
        }
    }

    private struct Kind {
        let mechanism: CK_MECHANISM_TYPE
        let keyType: CK_ULONG
        /// The attributes for the size or the curve, in the alternatives that modules accept.
        let parameters: [[Attribute]]

        init(_ type: KeyType) {
            switch type {
            case .rsa2048: self = .rsa(2048)
            case .rsa3072: self = .rsa(3072)
            case .rsa4096: self = .rsa(4096)
            case .p384: self = .ec([0x06, 5, 0x2b, 0x81, 0x04, 0, 0x22])
            case .p521: self = .ec([0x06, 5, 0x2b, 0x81, 0x04, 0, 0x23])
            // The curve by its number, and by its name for the modules that want that (PKCS#11 3.0, section 2.3.10).
            case .ed25519:
                self.init(
                    CKM_EC_EDWARDS_KEY_PAIR_GEN, CK_ULONG(CKK_EC_EDWARDS),
                    [[0x06, 3, 0x2b, 0x65, 0x70], [0x13, 12] + Array("edwards25519".utf8)].map {
                        [Attribute(CKA_EC_PARAMS, $0)]
                    })
            default: self = .ec([0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07])
            }
        }

        private init(_ mechanism: CK_MECHANISM_TYPE, _ keyType: CK_ULONG, _ parameters: [[Attribute]]) {
            (self.mechanism, self.keyType, self.parameters) = (mechanism, keyType, parameters)
        }

        private static func rsa(_ bits: CK_ULONG) -> Kind {
            let size = [Attribute(CKA_MODULUS_BITS, bits), Attribute(CKA_PUBLIC_EXPONENT, [1, 0, 1])]
            return Kind(CKM_RSA_PKCS_KEY_PAIR_GEN, CK_ULONG(CKK_RSA), [size])
        }

        private static func ec(_ curve: [UInt8]) -> Kind {
            Kind(CKM_EC_KEY_PAIR_GEN, CK_ULONG(CKK_EC), [[Attribute(CKA_EC_PARAMS, curve)]])
        }
    }
}

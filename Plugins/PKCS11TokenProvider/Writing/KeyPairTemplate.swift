import CP11Kit
import CertificateProviding

/// What a module is asked for to make a key pair of one type.
struct KeyPairTemplate {
    let mechanism: CK_MECHANISM_TYPE
    let publicKey, privateKey: [Attribute]

    /// The ways to ask, the one that says most first: modules refuse attributes that they do not know.
    static func all(_ type: KeyType, id: [UInt8], label: String) -> [KeyPairTemplate] {
        let name = [Attribute(CKA_ID, id), Attribute(CKA_LABEL, Array(label.utf8)), Attribute(CKA_TOKEN, true)]
        let publicKey = name + [Attribute(CKA_PRIVATE, false), Attribute(CKA_VERIFY, true)]
        let privateKey =
            name + [
                Attribute(CKA_PRIVATE, true), Attribute(CKA_SENSITIVE, true), Attribute(CKA_EXTRACTABLE, false),
                Attribute(CKA_SIGN, true),
            ]
        // Some modules let a key do everything that nobody has forbidden.
        let forbidden = [CKA_DECRYPT, CKA_UNWRAP, CKA_DERIVE, CKA_SIGN_RECOVER].map { Attribute($0, false) }
        return parameters(of: type).flatMap { parameters in
            [privateKey + forbidden, privateKey].map {
                KeyPairTemplate(mechanism: parameters.mechanism, publicKey: publicKey + parameters.key, privateKey: $0)
            }
        }
    }

    static func mechanism(of type: KeyType) -> CK_MECHANISM_TYPE {
        switch type {
        case .rsa2048, .rsa3072, .rsa4096: CKM_RSA_PKCS_KEY_PAIR_GEN
        case .ed25519: CKM_EC_EDWARDS_KEY_PAIR_GEN
        default: CKM_EC_KEY_PAIR_GEN
        }
    }

    static func keyType(of type: KeyType) -> CK_ULONG {
        switch type {
        case .rsa2048, .rsa3072, .rsa4096: CK_ULONG(CKK_RSA)
        case .ed25519: CK_ULONG(CKK_EC_EDWARDS)
        default: CK_ULONG(CKK_EC)
        }
    }

    private static func parameters(of type: KeyType) -> [(mechanism: CK_MECHANISM_TYPE, key: [Attribute])] {
        let values: [[Attribute]] =
            switch type {
            case .rsa2048: [rsa(2048)]
            case .rsa3072: [rsa(3072)]
            case .rsa4096: [rsa(4096)]
            // The curve by its number, and by its name for the modules that want that (PKCS#11 3.0, section 2.3.10).
            case .ed25519:
                [[0x06, 3, 0x2b, 0x65, 0x70], [0x13, 12] + Array("edwards25519".utf8)].map {
                    [Attribute(CKA_EC_PARAMS, $0)]
                }
            case .p384: [[Attribute(CKA_EC_PARAMS, [0x06, 5, 0x2b, 0x81, 0x04, 0, 0x22])]]
            case .p521: [[Attribute(CKA_EC_PARAMS, [0x06, 5, 0x2b, 0x81, 0x04, 0, 0x23])]]
            default: [[Attribute(CKA_EC_PARAMS, [0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07])]]
            }
        return values.map { (mechanism(of: type), [Attribute(CKA_KEY_TYPE, keyType(of: type))] + $0) }
    }

    private static func rsa(_ bits: CK_ULONG) -> [Attribute] {
        [Attribute(CKA_MODULUS_BITS, bits), Attribute(CKA_PUBLIC_EXPONENT, [1, 0, 1])]
    }
}

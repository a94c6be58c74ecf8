import CP11Kit
import CertificateProviding

/// How a token is made to sign with a scheme: the mechanism, and what has to be done to the message outside.
struct SigningMechanism: Sendable {
    enum Preparation: Sendable {
        /// The token hashes, or the scheme has no hash.
        case message
        /// The token gets the hash.
        case hash
        /// The token gets a PKCS#1 `DigestInfo` and pads it.
        case digestInfo
        /// The token only computes with the key: what it gets is padded as RFC 8017 says.
        case padded
    }

    let scheme: SignatureScheme
    let type: CK_MECHANISM_TYPE
    let preparation: Preparation
    /// `nil` for Ed25519.
    let hash: DigestAlgorithm?

    /// Whether the token signs a digest that was made outside.
    var takesDigest: Bool { preparation != .message }

    /// The mechanisms to sign with `key`: for each scheme that the token can really do, most preferred first, those that it
    /// may know, the best first.
    ///
    /// - Parameters:
    ///   - supported: The token's.
    ///   - allowed: The key's own `CKA_ALLOWED_MECHANISMS`; `nil` when it has none.
    static func all(
        for key: PublicKeyInfo, mechanisms supported: TokenMechanisms, allowed: Set<CK_MECHANISM_TYPE>? = nil
    ) -> [SigningMechanism] {
        schemes(for: key).flatMap(mechanisms(of:)).filter { mechanism in
            supported.maySign(mechanism.type, with: key) && allowed?.contains(mechanism.type) ?? true
        }
    }

    /// All mechanisms that any key signs by.
    static let types: Set<CK_MECHANISM_TYPE> = [
        CKM_ECDSA, CKM_ECDSA_SHA256, CKM_ECDSA_SHA384, CKM_ECDSA_SHA512, CKM_EDDSA, CKM_RSA_PKCS, CKM_RSA_X_509,
        CKM_RSA_PKCS_PSS, CKM_SHA256_RSA_PKCS, CKM_SHA384_RSA_PKCS, CKM_SHA512_RSA_PKCS, CKM_SHA256_RSA_PKCS_PSS,
        CKM_SHA384_RSA_PKCS_PSS, CKM_SHA512_RSA_PKCS_PSS,
    ]

    /// Whether a key of this kind signs by any mechanism.
    static func isPossible(for key: PublicKeyInfo) -> Bool { !schemes(for: key).isEmpty }

    private static func schemes(for key: PublicKeyInfo) -> [SignatureScheme] {
        switch (key.algorithm, key.curve) {
        case (.ec, "P-256"): [.ecdsaP256SHA256]
        case (.ec, "P-384"): [.ecdsaP384SHA384]
        case (.ec, "P-521"): [.ecdsaP521SHA512]
        case (.ed25519, _): [.ed25519]
        case (.rsa, _) where key.isRestrictedToPSS: [.rsaPSSPSSSHA256, .rsaPSSPSSSHA384, .rsaPSSPSSSHA512]
        case (.rsa, _):
            [
                .rsaPSSRSAESHA256, .rsaPSSRSAESHA384, .rsaPSSRSAESHA512, .rsaPKCS1SHA256, .rsaPKCS1SHA384,
                .rsaPKCS1SHA512,
            ]
        default: []
        }
    }

    /// The mechanisms that give a signature of `scheme`, the best first: hashing outside saves sending the message.
    private static func mechanisms(of scheme: SignatureScheme) -> [SigningMechanism] {
        func list(_ hash: DigestAlgorithm?, _ entries: [(CK_MECHANISM_TYPE, Preparation)]) -> [SigningMechanism] {
            entries.map { SigningMechanism(scheme: scheme, type: $0.0, preparation: $0.1, hash: hash) }
        }
        return switch scheme {
        case .ecdsaP256SHA256: list(.sha256, [(CKM_ECDSA, .hash), (CKM_ECDSA_SHA256, .message)])
        case .ecdsaP384SHA384: list(.sha384, [(CKM_ECDSA, .hash), (CKM_ECDSA_SHA384, .message)])
        case .ecdsaP521SHA512: list(.sha512, [(CKM_ECDSA, .hash), (CKM_ECDSA_SHA512, .message)])
        case .ed25519: list(nil, [(CKM_EDDSA, .message)])
        case .rsaPKCS1SHA256: list(.sha256, pkcs1(CKM_SHA256_RSA_PKCS))
        case .rsaPKCS1SHA384: list(.sha384, pkcs1(CKM_SHA384_RSA_PKCS))
        case .rsaPKCS1SHA512: list(.sha512, pkcs1(CKM_SHA512_RSA_PKCS))
        case .rsaPSSRSAESHA256, .rsaPSSPSSSHA256: list(.sha256, pss(CKM_SHA256_RSA_PKCS_PSS))
        case .rsaPSSRSAESHA384, .rsaPSSPSSSHA384: list(.sha384, pss(CKM_SHA384_RSA_PKCS_PSS))
        case .rsaPSSRSAESHA512, .rsaPSSPSSSHA512: list(.sha512, pss(CKM_SHA512_RSA_PKCS_PSS))
        default: []
        }
    }

    private static func pkcs1(_ hashing: CK_MECHANISM_TYPE) -> [(CK_MECHANISM_TYPE, Preparation)] {
        [(CKM_RSA_PKCS, .digestInfo), (hashing, .message), (CKM_RSA_X_509, .padded)]
    }

    private static func pss(_ hashing: CK_MECHANISM_TYPE) -> [(CK_MECHANISM_TYPE, Preparation)] {
        [(CKM_RSA_PKCS_PSS, .hash), (hashing, .message), (CKM_RSA_X_509, .padded)]
    }
}

extension DigestAlgorithm {
    /// The hash's mechanism and its mask generation function, as the parameters of PSS name them; `nil` for one that this
    /// room does not know.
    var pssParameters: CK_RSA_PKCS_PSS_PARAMS? {
        let names: (hash: CK_MECHANISM_TYPE, mask: CK_RSA_PKCS_MGF_TYPE)
        switch self {
        case .sha256: names = (CKM_SHA256, CK_RSA_PKCS_MGF_TYPE(CKG_MGF1_SHA256))
        case .sha384: names = (CKM_SHA384, CK_RSA_PKCS_MGF_TYPE(CKG_MGF1_SHA384))
        case .sha512: names = (CKM_SHA512, CK_RSA_PKCS_MGF_TYPE(CKG_MGF1_SHA512))
        default: return nil
        }
        return CK_RSA_PKCS_PSS_PARAMS(hashAlg: names.hash, mgf: names.mask, sLen: CK_ULONG(size))
    }
}

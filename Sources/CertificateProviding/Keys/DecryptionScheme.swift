/// An RSA encryption scheme with its hash, by its name in the IANA registry of JSON Web Encryption algorithms (RFC 7518,
/// section 4.1). TLS has no names for encryption.
public struct DecryptionScheme: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }

    /// RSAES-OAEP (RFC 8017, section 7.1) with SHA-256, MGF1 with SHA-256 and an empty label: `RSA-OAEP-256`.
    public static let rsaOAEPSHA256 = Self(rawValue: "RSA-OAEP-256")
    /// RSAES-OAEP (RFC 8017, section 7.1) with SHA-1, MGF1 with SHA-1 and an empty label: `RSA-OAEP`. The weaknesses of
    /// SHA-1 in signatures do not matter here, and many tokens support no other hash.
    public static let rsaOAEPSHA1 = Self(rawValue: "RSA-OAEP")
    /// RSAES-PKCS1-v1_5 (RFC 8017, section 7.2): `RSA1_5`. For protocols that demand it, such as SCEP. Some libraries
    /// return random bytes for a damaged ciphertext instead of an error.
    public static let rsaPKCS1 = Self(rawValue: "RSA1_5")

    /// The name in the registry.
    public var description: String { rawValue }
}

extension KeyUse {
    /// The schemes that the use permits, most preferred first; none for a use without decryption.
    public var decryptionSchemes: [DecryptionScheme] {
        (contains(.oaepDecryption) ? [.rsaOAEPSHA256, .rsaOAEPSHA1] : [])
            + (contains(.pkcs1Decryption) ? [.rsaPKCS1] : [])
    }

    /// Creates the use of a key from what it can do.
    package init(signatureSchemes: [SignatureScheme], decryptionSchemes: [DecryptionScheme]) {
        self = signatureSchemes.isEmpty ? [] : .signing
        for kind in [KeyUse.oaepDecryption, .pkcs1Decryption]
        where decryptionSchemes.contains(where: kind.decryptionSchemes.contains) { insert(kind) }
    }
}

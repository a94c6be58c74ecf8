/// A signature algorithm with hash and padding, by its number in the TLS SignatureScheme registry (RFC 8446, section
/// 4.2.3).
public struct SignatureScheme: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: UInt16
    public init(rawValue: UInt16) { self.rawValue = rawValue }

    /// RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017, section 8.2): `rsa_pkcs1_sha256`. In TLS 1.3 for certificates only.
    public static let rsaPKCS1SHA256 = Self(rawValue: 0x0401)
    /// RSASSA-PKCS1-v1_5 with SHA-384 (RFC 8017, section 8.2): `rsa_pkcs1_sha384`. In TLS 1.3 for certificates only.
    public static let rsaPKCS1SHA384 = Self(rawValue: 0x0501)
    /// RSASSA-PKCS1-v1_5 with SHA-512 (RFC 8017, section 8.2): `rsa_pkcs1_sha512`. In TLS 1.3 for certificates only.
    public static let rsaPKCS1SHA512 = Self(rawValue: 0x0601)
    /// ECDSA on P-256 with SHA-256: `ecdsa_secp256r1_sha256`. The signature is DER (RFC 3279, section 2.2.3).
    public static let ecdsaP256SHA256 = Self(rawValue: 0x0403)
    /// ECDSA on P-384 with SHA-384: `ecdsa_secp384r1_sha384`. The signature is DER (RFC 3279, section 2.2.3).
    public static let ecdsaP384SHA384 = Self(rawValue: 0x0503)
    /// ECDSA on P-521 with SHA-512: `ecdsa_secp521r1_sha512`. The signature is DER (RFC 3279, section 2.2.3).
    public static let ecdsaP521SHA512 = Self(rawValue: 0x0603)
    /// RSASSA-PSS (RFC 8017, section 8.1) with SHA-256 and a key that is certified as rsaEncryption:
    /// `rsa_pss_rsae_sha256`. The salt is as long as the digest.
    public static let rsaPSSRSAESHA256 = Self(rawValue: 0x0804)
    /// RSASSA-PSS with SHA-384 and an rsaEncryption key: `rsa_pss_rsae_sha384`. The salt is as long as the digest.
    public static let rsaPSSRSAESHA384 = Self(rawValue: 0x0805)
    /// RSASSA-PSS with SHA-512 and an rsaEncryption key: `rsa_pss_rsae_sha512`. The salt is as long as the digest.
    public static let rsaPSSRSAESHA512 = Self(rawValue: 0x0806)
    /// Ed25519 (RFC 8032): `ed25519`. The signature has 64 bytes.
    public static let ed25519 = Self(rawValue: 0x0807)
    /// RSASSA-PSS with SHA-256 and a key that is certified as id-RSASSA-PSS (RFC 4055): `rsa_pss_pss_sha256`. The salt
    /// is as long as the digest.
    public static let rsaPSSPSSSHA256 = Self(rawValue: 0x0809)
    /// RSASSA-PSS with SHA-384 and an id-RSASSA-PSS key: `rsa_pss_pss_sha384`. The salt is as long as the digest.
    public static let rsaPSSPSSSHA384 = Self(rawValue: 0x080a)
    /// RSASSA-PSS with SHA-512 and an id-RSASSA-PSS key: `rsa_pss_pss_sha512`. The salt is as long as the digest.
    public static let rsaPSSPSSSHA512 = Self(rawValue: 0x080b)

    private static let names: [SignatureScheme: String] = [
        .rsaPKCS1SHA256: "rsa_pkcs1_sha256", .rsaPKCS1SHA384: "rsa_pkcs1_sha384",
        .rsaPKCS1SHA512: "rsa_pkcs1_sha512", .ecdsaP256SHA256: "ecdsa_secp256r1_sha256",
        .ecdsaP384SHA384: "ecdsa_secp384r1_sha384", .ecdsaP521SHA512: "ecdsa_secp521r1_sha512",
        .rsaPSSRSAESHA256: "rsa_pss_rsae_sha256", .rsaPSSRSAESHA384: "rsa_pss_rsae_sha384",
        .rsaPSSRSAESHA512: "rsa_pss_rsae_sha512", .ed25519: "ed25519",
        .rsaPSSPSSSHA256: "rsa_pss_pss_sha256", .rsaPSSPSSSHA384: "rsa_pss_pss_sha384",
        .rsaPSSPSSSHA512: "rsa_pss_pss_sha512",
    ]

    /// Creates a scheme from its name in the registry, or from its number as ``description`` writes it; `nil` for another
    /// text.
    package init?(_ name: String) {
        if let known = Self.names.first(where: { $0.value == name }) {
            self = known.key
        } else {
            guard name.hasPrefix("0x"), let number = UInt16(name.dropFirst(2), radix: 16) else { return nil }
            self.init(rawValue: number)
        }
    }

    /// The scheme's name in the registry, or its number.
    public var description: String { Self.names[self] ?? "0x" + String(rawValue, radix: 16) }
}

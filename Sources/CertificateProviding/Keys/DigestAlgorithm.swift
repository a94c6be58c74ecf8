import Crypto

/// The hash function of a signature scheme.
public struct DigestAlgorithm: Hashable, Sendable, CustomStringConvertible {
    enum Function { case sha256, sha384, sha512 }

    let function: Function

    /// SHA-256 (FIPS 180-4).
    public static let sha256 = Self(function: .sha256)
    /// SHA-384 (FIPS 180-4).
    public static let sha384 = Self(function: .sha384)
    /// SHA-512 (FIPS 180-4).
    public static let sha512 = Self(function: .sha512)

    /// The size of a digest, in bytes.
    public var size: Int {
        switch function {
        case .sha256: SHA256Digest.byteCount
        case .sha384: SHA384Digest.byteCount
        case .sha512: SHA512Digest.byteCount
        }
    }

    /// Returns the digest of a message in memory. Data in pieces are hashed by swift-crypto's `SHA256`, `SHA384` or
    /// `SHA512`.
    public func digest(of message: [UInt8]) -> [UInt8] {
        switch function {
        case .sha256: Array(SHA256.hash(data: message))
        case .sha384: Array(SHA384.hash(data: message))
        case .sha512: Array(SHA512.hash(data: message))
        }
    }

    /// The name in FIPS 180-4, such as `SHA-256`.
    public var description: String { "SHA-\(size * 8)" }
}

extension SignatureScheme {
    /// The hash function of the scheme; `nil` for Ed25519, which signs the message itself, and for an unknown scheme.
    public var digestAlgorithm: DigestAlgorithm? {
        switch self {
        case .ecdsaP256SHA256, .rsaPKCS1SHA256, .rsaPSSRSAESHA256, .rsaPSSPSSSHA256: .sha256
        case .ecdsaP384SHA384, .rsaPKCS1SHA384, .rsaPSSRSAESHA384, .rsaPSSPSSSHA384: .sha384
        case .ecdsaP521SHA512, .rsaPKCS1SHA512, .rsaPSSRSAESHA512, .rsaPSSPSSSHA512: .sha512
        default: nil
        }
    }
}

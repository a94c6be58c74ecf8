import CertificateProviding

/// The keys and certificates of a PKCS#12 file, not yet paired.
struct PKCS12Contents {
    struct Key {
        var pkcs8: SecretBytes
        var publicKey: PublicKeyInfo
        var friendlyName: String?
        var localKeyID: [UInt8]?
    }

    struct Certificate {
        var certificate: X509Certificate
        var friendlyName: String?
        var localKeyID: [UInt8]?
    }

    var keys: [Key] = []
    var certificates: [Certificate] = []
    /// An error for each certificate that cannot be read. Not reported if the file has no key.
    var unreadableCertificates: [ProviderError] = []
    /// Whether parts were skipped because they are encrypted with a public key (RFC 7292, section 3.1). Decrypting them
    /// would need another private key.
    var hasPublicKeyEncryptedParts = false
    /// An error for each object that cannot be used.
    var unusable: [ProviderError] = []
}

import CertificateProviding

/// What was in a PKCS#12 file: keys and certificates, not yet paired.
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
    /// Why certificates that are there cannot be read. Of no interest where there is no key.
    var unreadableCertificates: [CertificateProviderError] = []
    /// Whether parts were passed over because they are encrypted with a public key (RFC 7292, section 3.1), which takes
    /// another private key to open.
    var hasPublicKeyEncryptedParts = false
    /// Objects that are there and cannot be used, each with its reason.
    var unusable: [CertificateProviderError] = []
}

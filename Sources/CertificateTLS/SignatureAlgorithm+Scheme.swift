import CertificateProviding
import NIOSSL

extension SignatureAlgorithm {
    /// Both sides use the numbers of the TLS SignatureScheme registry (RFC 8446, section 4.2.3).
    init(scheme: SignatureScheme) { self.init(rawValue: scheme.rawValue) }

    var scheme: SignatureScheme { SignatureScheme(rawValue: rawValue) }

    /// What BoringSSL can sign and verify with, most preferred first, and may: no SHA-1.
    ///
    /// BoringSSL's own default for verifying lacks Ed25519 and P-521, which would make it refuse such peers.
    static let usable: [SignatureAlgorithm] = [
        .ecdsaSecp256R1Sha256, .ed25519, .rsaPssRsaeSha256, .ecdsaSecp384R1Sha384, .rsaPssRsaeSha384,
        .ecdsaSecp521R1Sha512, .rsaPssRsaeSha512, .rsaPkcs1Sha256, .rsaPkcs1Sha384, .rsaPkcs1Sha512,
    ]

    /// What signs no handshake of TLS 1.3 (RFC 8446, section 4.2.3).
    static let onlyInTLS12: Set<SignatureAlgorithm> = [.rsaPkcs1Sha256, .rsaPkcs1Sha384, .rsaPkcs1Sha512]

    /// Whether TLS 1.2 lets a key of this kind use the algorithm. There, unlike in TLS 1.3, the ECDSA algorithms do not
    /// name a curve but only a hash (RFC 8422, section 5.4), and BoringSSL chooses accordingly.
    func fits(_ algorithm: PublicKeyInfo.Algorithm) -> Bool {
        switch self {
        case .ecdsaSecp256R1Sha256, .ecdsaSecp384R1Sha384, .ecdsaSecp521R1Sha512: algorithm == .ec
        case .ed25519: algorithm == .ed25519
        default: algorithm == .rsa
        }
    }
}

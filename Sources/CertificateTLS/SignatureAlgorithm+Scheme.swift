import CertificateProviding
import NIOSSL

extension SignatureAlgorithm {
    /// Converts a scheme. Both types use the numbers of the TLS SignatureScheme registry (RFC 8446, section 4.2.3).
    init(scheme: SignatureScheme) { self.init(rawValue: scheme.rawValue) }

    var scheme: SignatureScheme { SignatureScheme(rawValue: rawValue) }

    /// The algorithms that are permitted for signing and verifying, most preferred first. SHA-1 is excluded.
    ///
    /// BoringSSL's own default for verifying lacks Ed25519 and P-521, so it would refuse such peers.
    static let usable: [SignatureAlgorithm] = [
        .ecdsaSecp256R1Sha256, .ed25519, .rsaPssRsaeSha256, .ecdsaSecp384R1Sha384, .rsaPssRsaeSha384,
        .ecdsaSecp521R1Sha512, .rsaPssRsaeSha512, .rsaPkcs1Sha256, .rsaPkcs1Sha384, .rsaPkcs1Sha512,
    ]

    /// The algorithms that TLS 1.3 does not permit in handshakes (RFC 8446, section 4.2.3).
    static let onlyInTLS12: Set<SignatureAlgorithm> = [.rsaPkcs1Sha256, .rsaPkcs1Sha384, .rsaPkcs1Sha512]

    /// Whether TLS 1.2 permits the algorithm for this type of key. In TLS 1.2, unlike 1.3, the ECDSA algorithms specify
    /// only a hash and not a curve (RFC 8422, section 5.4), and BoringSSL chooses accordingly.
    func fits(_ algorithm: PublicKeyInfo.Algorithm) -> Bool {
        switch self {
        case .ecdsaSecp256R1Sha256, .ecdsaSecp384R1Sha384, .ecdsaSecp521R1Sha512: algorithm == .ec
        case .ed25519: algorithm == .ed25519
        default: algorithm == .rsa
        }
    }
}

import CertificateProviding

/// The algorithm identifiers of a signature scheme in a SignerInfo (RFC 3370, RFC 4056, RFC 5754, RFC 8419).
struct CMSAlgorithm: Sendable {
    let digest: DigestAlgorithm
    let digestIdentifier: [UInt8]
    let signatureIdentifier: [UInt8]
    private let isEdwards: Bool

    /// `nil` for a scheme that CMS does not have.
    init?(_ scheme: SignatureScheme) {
        let digest: DigestAlgorithm
        switch scheme {
        case .ed25519:
            digest = .sha512
            signatureIdentifier = DER.algorithm([1, 3, 101, 112])
        default:
            guard let known = scheme.digestAlgorithm else { return nil }
            digest = known
            switch scheme {
            case .ecdsaP256SHA256: signatureIdentifier = DER.algorithm([1, 2, 840, 10045, 4, 3, 2])
            case .ecdsaP384SHA384: signatureIdentifier = DER.algorithm([1, 2, 840, 10045, 4, 3, 3])
            case .ecdsaP521SHA512: signatureIdentifier = DER.algorithm([1, 2, 840, 10045, 4, 3, 4])
            // As OpenSSL writes it, and every verifier reads it.
            case .rsaPKCS1SHA256, .rsaPKCS1SHA384, .rsaPKCS1SHA512:
                signatureIdentifier = DER.algorithm([1, 2, 840, 113549, 1, 1, 1], DER.null)
            default: signatureIdentifier = Self.pss(digest)
            }
        }
        self.digest = digest
        digestIdentifier = DER.algorithm(digest.objectIdentifier)
        isEdwards = scheme == .ed25519
    }

    /// RSASSA-PSS with MGF1 of the same digest and a salt as long as it (RFC 4055, section 3.1).
    private static func pss(_ digest: DigestAlgorithm) -> [UInt8] {
        let hash = DER.algorithm(digest.objectIdentifier, DER.null)
        let mask = DER.algorithm([1, 2, 840, 113549, 1, 1, 8], hash)
        let salt = DER.value(DER.integer, [UInt8(digest.size)])
        return DER.algorithm(
            [1, 2, 840, 113549, 1, 1, 10],
            DER.value(
                DER.sequence,
                DER.value(DER.context(0), hash) + DER.value(DER.context(1), mask) + DER.value(DER.context(2), salt)))
    }

    /// The maximum number of bytes of a signature.
    func maximumSize(of key: PublicKeyInfo) -> Int {
        let bytes = (key.bits + 7) / 8
        if isEdwards { return 64 }
        guard key.algorithm == .ec else { return bytes }
        // Two INTEGERs. One has a zero in front where the curve's order fills its bytes.
        let number = 2 + bytes + (key.bits % 8 == 0 ? 1 : 0)
        return DER.header(DER.sequence, 2 * number).count + 2 * number
    }
}

extension DigestAlgorithm {
    fileprivate var objectIdentifier: [UInt] {
        switch self {
        case .sha256: [2, 16, 840, 1, 101, 3, 4, 2, 1]
        case .sha384: [2, 16, 840, 1, 101, 3, 4, 2, 2]
        default: [2, 16, 840, 1, 101, 3, 4, 2, 3]
        }
    }
}

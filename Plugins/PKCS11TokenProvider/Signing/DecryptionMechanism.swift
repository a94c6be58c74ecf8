import CP11Kit
import CertificateProviding

/// How a token is made to decrypt by a scheme.
struct DecryptionMechanism: Sendable {
    let scheme: DecryptionScheme
    let type: CK_MECHANISM_TYPE
    /// The parameters of OAEP (PKCS#11, section 2.1.7): the hash, and MGF1 with the same hash.
    private let oaep: (hash: CK_MECHANISM_TYPE, mask: CK_RSA_PKCS_MGF_TYPE)?

    /// Returns `nil` for an unknown scheme.
    init?(_ scheme: DecryptionScheme) {
        self.scheme = scheme
        switch scheme {
        case .rsaOAEPSHA256: oaep = (CKM_SHA256, CK_RSA_PKCS_MGF_TYPE(CKG_MGF1_SHA256))
        case .rsaOAEPSHA1: oaep = (CKM_SHA_1, CK_RSA_PKCS_MGF_TYPE(CKG_MGF1_SHA1))
        case .rsaPKCS1: oaep = nil
        default: return nil
        }
        type = oaep == nil ? CKM_RSA_PKCS : CKM_RSA_PKCS_OAEP
    }

    /// All, most preferred first.
    static let all = ([.rsaOAEPSHA256, .rsaOAEPSHA1, .rsaPKCS1] as [DecryptionScheme]).compactMap(Self.init)
    static let types = Set(all.map(\.type))

    /// Whether the mechanism has several forms, of which a token may support some: its list of mechanisms does not say
    /// which hashes it takes for OAEP.
    var hasVariants: Bool { oaep != nil }

    /// Lends the mechanism with its parameters to a C call.
    func withMechanism<T>(_ body: (UnsafeMutablePointer<CK_MECHANISM>) -> T) -> T {
        var mechanism = CK_MECHANISM(mechanism: type, pParameter: nil, ulParameterLen: 0)
        guard let oaep else { return body(&mechanism) }
        // Without a label, SoftHSM demands a null pointer.
        var parameters = CK_RSA_PKCS_OAEP_PARAMS(
            hashAlg: oaep.hash, mgf: oaep.mask, source: CK_RSA_PKCS_OAEP_SOURCE_TYPE(CKZ_DATA_SPECIFIED),
            pSourceData: nil, ulSourceDataLen: 0)
        return withUnsafeMutablePointer(to: &parameters) { pointer in
            mechanism.pParameter = UnsafeMutableRawPointer(pointer)
            mechanism.ulParameterLen = CK_ULONG(MemoryLayout<CK_RSA_PKCS_OAEP_PARAMS>.size)
            return body(&mechanism)
        }
    }
}

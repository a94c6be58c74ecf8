import CP11Kit
import CertificateProviding

extension TokenMechanisms {
    /// Returns the mechanisms that a new RSA key for one kind of decryption may be used by (`CKA_ALLOWED_MECHANISMS`), as
    /// `CKA_DECRYPT` permits both kinds; `nil` where there is nothing to restrict, or the key could not sign then.
    ///
    /// `CKM_RSA_X_509` is never among them, which decrypts without a padding. `CKM_RSA_PKCS` signs and decrypts: a key for
    /// OAEP signs by the mechanisms that hash.
    func restriction(to use: KeyUse) -> [CK_MECHANISM_TYPE]? {
        let decryption = Set(use.decryptionSchemes.compactMap { DecryptionMechanism($0)?.type })
        guard decryption.count == 1 else { return nil }
        let signing: Set<CK_MECHANISM_TYPE> = [
            CKM_RSA_PKCS_PSS, CKM_SHA256_RSA_PKCS, CKM_SHA384_RSA_PKCS, CKM_SHA512_RSA_PKCS, CKM_SHA256_RSA_PKCS_PSS,
            CKM_SHA384_RSA_PKCS_PSS, CKM_SHA512_RSA_PKCS_PSS,
        ]
        let listed = listed(of: signing)
        guard use.contains(.pkcs1Decryption) || !listed.isEmpty else { return nil }
        return listed.union(decryption).sorted()
    }
}

import CP11Kit
import CertificateProviding

/// The mechanisms of a token, and what it says of those that sign or decrypt.
struct TokenMechanisms: Sendable {
    private let listed: Set<CK_MECHANISM_TYPE>
    /// The mechanisms that the token describes.
    private let known: [CK_MECHANISM_TYPE: Info]

    fileprivate struct Info {
        let signs, decrypts: Bool
        let sizes: ClosedRange<CK_ULONG>?
    }

    /// Asks the module. Blocks.
    init(of slot: Slot) throws(CryptokiError) {
        // One more than is asked for: where it leaves some out, p11-kit's remoting reads behind the end of the list.
        listed = try Set(
            slot.module.list("C_GetMechanismList", maximum: 4096, spare: 1) { $0.C_GetMechanismList?(slot.id, $1, $2) })
        var known: [CK_MECHANISM_TYPE: Info] = [:]
        for mechanism in listed.intersection(SigningMechanism.types.union(DecryptionMechanism.types)) {
            var info = CK_MECHANISM_INFO()
            do throws(CryptokiError) {
                try slot.module.call("C_GetMechanismInfo") { $0.C_GetMechanismInfo?(slot.id, mechanism, &info) }
                known[mechanism] = Info(info)
            } catch {
                // Not every module can say more than that there is one.
                if error.endsConnection, !error.isUnspecific { throw error }
            }
        }
        self.known = known
    }

    /// Whether the token may be able to decrypt by a mechanism with a key: only what it says clearly counts against it.
    func mayDecrypt(_ mechanism: CK_MECHANISM_TYPE, with key: PublicKeyInfo) -> Bool {
        guard listed.contains(mechanism) else { return false }
        guard let info = known[mechanism] else { return true }
        return info.decrypts && info.fits(key)
    }

    /// Returns the mechanisms that the token lists.
    func listed(of mechanisms: Set<CK_MECHANISM_TYPE>) -> Set<CK_MECHANISM_TYPE> { listed.intersection(mechanisms) }

    /// Whether the token may be able to sign by a mechanism with a key: only what it says clearly counts against it.
    func maySign(_ mechanism: CK_MECHANISM_TYPE, with key: PublicKeyInfo) -> Bool {
        guard listed.contains(mechanism) else { return false }
        guard let info = known[mechanism] else { return true }
        return info.signs && info.fits(key)
    }
}

extension TokenMechanisms.Info {
    /// Some modules leave all of it, or the flags, at zero.
    init(_ info: CK_MECHANISM_INFO) {
        let operations = CK_FLAGS(
            CKF_ENCRYPT | CKF_DECRYPT | CKF_DIGEST | CKF_SIGN | CKF_SIGN_RECOVER | CKF_VERIFY | CKF_VERIFY_RECOVER
                | CKF_GENERATE | CKF_GENERATE_KEY_PAIR | CKF_WRAP | CKF_UNWRAP | CKF_DERIVE)
        func does(_ flag: Int) -> Bool { info.flags & operations == 0 || info.flags & CK_FLAGS(flag) != 0 }
        (signs, decrypts) = (does(Int(CKF_SIGN)), does(Int(CKF_DECRYPT)))
        let (least, most) = (info.ulMinKeySize, info.ulMaxKeySize == 0 ? .max : info.ulMaxKeySize)
        sizes = least <= most ? least...most : nil
    }

    /// Sizes are in bits with most modules, and in bytes with some. Those of Ed25519 follow no rule.
    func fits(_ key: PublicKeyInfo) -> Bool {
        guard let sizes, key.bits > 0, key.algorithm == .rsa || key.algorithm == .ec else { return true }
        return sizes.contains(CK_ULONG(key.bits)) || sizes.contains(CK_ULONG((key.bits + 7) / 8))
    }
}

import CP11Kit
import CertificateProviding

/// Reads what is on a token, through one session. Everything here blocks.
struct TokenReader {
    let session: Session
    let slot: Slot

    /// A private key that may sign. It is visible only after login, unless somebody made it public.
    struct PrivateKey {
        let handle: CK_OBJECT_HANDLE
        let id, label: [UInt8]
        /// `CKA_KEY_TYPE`; `nil` where the module does not say.
        let type: CK_KEY_TYPE?
        /// RSA keys show it; others do not (PKCS#11, section 2.3.4).
        let modulus: [UInt8]?
        /// `CKA_EC_POINT` of the public keys with the same id, as far as there are any.
        let points: [[UInt8]]
        /// Whether each signature wants the PIN anew (`CKA_ALWAYS_AUTHENTICATE`).
        let needsPINEachTime: Bool
        /// `CKA_ALLOWED_MECHANISMS`; `nil` when the key has none.
        let allowedMechanisms: Set<CK_MECHANISM_TYPE>?
    }

    /// A certificate, and the key that has its id.
    struct Candidate {
        let certificate: X509Certificate
        let id, label: [UInt8]
        let key: PrivateKey?
        /// The key's URI; the certificate's while the key is hidden, and where the key has more certificates.
        var uri: String
    }

    /// Returns the private keys that may sign.
    /// - Parameter id: Only those with this `CKA_ID`.
    func privateKeys(id: [UInt8]? = nil) throws(CryptokiError) -> [PrivateKey] {
        var keys: [PrivateKey] = []
        for handle in try privateKeyHandles(id) {
            if let key = try privateKey(handle) { keys.append(key) }
        }
        return keys
    }

    /// Returns those that can be read.
    func privateKeys(
        id: [UInt8]? = nil, failures: inout [CertificateProviderError]
    ) throws(CryptokiError) -> [PrivateKey] {
        let (keys, failed) = try each(privateKeyHandles(id)) { handle throws(CryptokiError) in try privateKey(handle) }
        failures += failed
        return keys
    }

    private func privateKeyHandles(_ id: [UInt8]?) throws(CryptokiError) -> [CK_OBJECT_HANDLE] {
        try session.objects(with: [Attribute(CKA_CLASS, CKO_PRIVATE_KEY)] + (id.map { [Attribute(CKA_ID, $0)] } ?? []))
    }

    /// `nil` for a key that may not sign.
    func privateKey(_ handle: CK_OBJECT_HANDLE) throws(CryptokiError) -> PrivateKey? {
        // Asked of the object and not of the search: some modules do not search for it.
        guard try session.flag(CKA_SIGN, of: handle) ?? false else { return nil }
        let mechanisms = try session.attribute(CKA_ALLOWED_MECHANISMS, of: handle)
        let id = try session.attribute(CKA_ID, of: handle) ?? []
        let type = try session.number(CKA_KEY_TYPE, of: handle)
        return PrivateKey(
            handle: handle, id: id,
            label: try session.attribute(CKA_LABEL, of: handle) ?? [], type: type,
            modulus: type == CKK_RSA ? try session.attribute(CKA_MODULUS, of: handle) : nil,
            points: type == CKK_RSA ? [] : try points(id: id),
            needsPINEachTime: try session.flag(CKA_ALWAYS_AUTHENTICATE, of: handle) ?? false,
            allowedMechanisms: mechanisms.flatMap { $0.isEmpty ? nil : Set(Self.numbers($0)) })
    }

    private func points(id: [UInt8]) throws(CryptokiError) -> [[UInt8]] {
        let attributes = [Attribute(CKA_CLASS, CKO_PUBLIC_KEY), Attribute(CKA_ID, id)]
        var points: [[UInt8]] = []
        for handle in try session.objects(with: attributes).prefix(8) {
            if let point = try session.attribute(CKA_EC_POINT, of: handle) { points.append(point) }
        }
        return points
    }

    /// Reads objects one by one: one that cannot be read hides no other.
    ///
    /// - Parameter maximum: How many are enough.
    /// - Throws: What is wrong with the token and not with an object.
    func each<T>(
        _ objects: [CK_OBJECT_HANDLE], maximum: Int = .max,
        _ read: (CK_OBJECT_HANDLE) throws(CryptokiError) -> T?
    ) throws(CryptokiError) -> (found: [T], failures: [CertificateProviderError]) {
        var found: [T] = []
        var errors: [CryptokiError] = []
        for object in objects where found.count < maximum {
            do throws(CryptokiError) {
                if let one = try read(object) { found.append(one) }
            } catch {
                if error.endsConnection, !error.isUnspecific { throw error }
                if errors.count < Self.maximumFailures { errors.append(error) }
            }
        }
        // Some modules have nothing else to say of a token that is gone.
        if found.isEmpty, let error = errors.first(where: \.isUnspecific) { throw error }
        return (found, errors.map { CertificateProviderError($0, token: slot.displayName) })
    }

    /// As many are named as anybody reads.
    private static let maximumFailures = 16

    private static func numbers(_ bytes: [UInt8]) -> [CK_ULONG] {
        let size = MemoryLayout<CK_ULONG>.size
        return bytes.withUnsafeBytes { buffer in
            (0..<buffer.count / size).map { buffer.loadUnaligned(fromByteOffset: $0 * size, as: CK_ULONG.self) }
        }
    }
}

extension TokenReader.PrivateKey {
    /// Whether this may be the private half of a public key. Where no public key lies beside it, only a signature tells.
    func mayBe(_ publicKey: PublicKeyInfo) -> Bool {
        guard isOfKind(of: publicKey) else { return false }
        if let modulus { return publicKey.rsaModulus == Array(modulus.drop { $0 == 0 }) }
        return points.isEmpty || points.contains { publicKey.hasPoint($0) }
    }

    private func isOfKind(of publicKey: PublicKeyInfo) -> Bool {
        switch type {
        case CK_KEY_TYPE(CKK_RSA): publicKey.algorithm == .rsa
        // Before PKCS#11 3.0 there was no other type for Ed25519.
        case CK_KEY_TYPE(CKK_EC): publicKey.algorithm != .rsa
        case CK_KEY_TYPE(CKK_EC_EDWARDS): publicKey.algorithm == .ed25519
        default: true
        }
    }
}

extension PublicKeyInfo {
    /// Whether a `CKA_EC_POINT` is this key's: wrapped into an OCTET STRING as the standard says, or not; whole, or
    /// compressed (SEC 1, section 2.3.3).
    fileprivate func hasPoint(_ point: [UInt8]) -> Bool {
        if point.suffix(keyBits.count) == keyBits[...] { return true }
        // A point is a byte that says how it is written, and two numbers of one length.
        guard algorithm == .ec, keyBits.first == 4, keyBits.count >= 3, !keyBits.count.isMultiple(of: 2),
            let last = keyBits.last
        else { return false }
        let compressed = [2 | (last & 1)] + keyBits[1...(keyBits.count / 2)]
        // What stands before it is at most the tag and the length.
        return point.count <= compressed.count + 2 && point.suffix(compressed.count) == compressed[...]
    }
}

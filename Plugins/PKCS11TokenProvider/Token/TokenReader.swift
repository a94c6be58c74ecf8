import CP11Kit
import CertificateProviding

/// Reads the objects of a token through one session. Everything here blocks.
struct TokenReader {
    let session: Session
    let slot: Slot

    /// A private key that may sign. It is visible only after login, unless it was made public.
    struct PrivateKey {
        let handle: CK_OBJECT_HANDLE
        let id, label: [UInt8]
        /// `CKA_KEY_TYPE`; `nil` where the module does not say.
        let type: CK_KEY_TYPE?
        /// RSA keys show it; others do not (PKCS#11, section 2.3.4). Without leading zeros.
        let modulus: [UInt8]?
        /// `CKA_EC_POINT` of the public keys with the same id, as far as there are any.
        var points: Set<[UInt8]> = []
        /// Whether each signature wants the PIN anew (`CKA_ALWAYS_AUTHENTICATE`).
        let needsPINEachTime: Bool
        /// `CKA_ALLOWED_MECHANISMS`; `nil` when the key has none.
        let allowedMechanisms: Set<CK_MECHANISM_TYPE>?
    }

    /// A certificate, and the key that has its id.
    struct Candidate {
        let handle: CK_OBJECT_HANDLE
        let certificate: X509Certificate
        let id, label: [UInt8]
        let key: PrivateKey?
        /// The key's URI; the certificate's while the key is hidden, and where the key has more certificates.
        var uri: String
    }

    /// Objects that were read one by one: one that cannot be read hides no other.
    struct Reading<T> {
        var found: [T] = []
        /// The failures of other keys; of many, the first ones.
        var errors: [CryptokiError] = []
        var unreadable = 0

        /// Returns the objects that match.
        /// - Throws: If no key was found, the failure of one that may be it.
        func all(
            maximum: Int = .max, where isWanted: (T) throws(CryptokiError) -> Bool
        ) throws(CryptokiError) -> [T] {
            var wanted: [T] = []
            for one in found where try isWanted(one) {
                wanted.append(one)
                if wanted.count == maximum { break }
            }
            if wanted.isEmpty, let error = errors.first { throw error }
            return wanted
        }
    }

    /// Reads the private keys that may sign.
    /// - Parameter id: Only those with this `CKA_ID`.
    func privateKeys(id: [UInt8]? = nil) throws(CryptokiError) -> Reading<PrivateKey> {
        var keys = try each(objects(CKO_PRIVATE_KEY, id)) { handle throws(CryptokiError) in try readPrivateKey(handle) }
        guard keys.found.contains(where: { $0.type != CK_KEY_TYPE(CKK_RSA) }) else { return keys }
        let points = try points(id: id)
        for index in keys.found.indices where keys.found[index].type != CK_KEY_TYPE(CKK_RSA) {
            keys.found[index].points = points[keys.found[index].id] ?? []
        }
        return keys
    }

    /// Reads one private key; `nil` for one that may not sign.
    func privateKey(_ handle: CK_OBJECT_HANDLE) throws(CryptokiError) -> PrivateKey? {
        guard var key = try readPrivateKey(handle) else { return nil }
        if key.type != CK_KEY_TYPE(CKK_RSA) { key.points = try points(id: key.id)[key.id] ?? [] }
        return key
    }

    private func readPrivateKey(_ handle: CK_OBJECT_HANDLE) throws(CryptokiError) -> PrivateKey? {
        // Asked of the object and not of the search: some modules do not search for it.
        guard try session.flag(CKA_SIGN, of: handle) ?? false else { return nil }
        // p11-kit's remoting (0.24) answers the question for the length of this list with CKR_DEVICE_ERROR.
        let mechanisms = try session.attribute(CKA_ALLOWED_MECHANISMS, of: handle, room: 1024)
        let type = try session.number(CKA_KEY_TYPE, of: handle)
        let modulus = type == CKK_RSA ? try session.attribute(CKA_MODULUS, of: handle) : nil
        return PrivateKey(
            handle: handle, id: try session.attribute(CKA_ID, of: handle) ?? [],
            label: try session.attribute(CKA_LABEL, of: handle) ?? [], type: type,
            modulus: modulus.map { Array($0.drop { $0 == 0 }) },
            needsPINEachTime: try session.flag(CKA_ALWAYS_AUTHENTICATE, of: handle) ?? false,
            allowedMechanisms: mechanisms.flatMap { $0.isEmpty ? nil : Set(Self.numbers($0)) })
    }

    /// The points of the public keys, by their `CKA_ID`: in one search, since a token may have thousands.
    private func points(id: [UInt8]?) throws(CryptokiError) -> [[UInt8]: Set<[UInt8]>] {
        var points: [[UInt8]: Set<[UInt8]>] = [:]
        // A public key that cannot be read does not count: then only a signature tells whose key it is.
        _ = try each(objects(CKO_PUBLIC_KEY, id)) { handle throws(CryptokiError) -> CK_OBJECT_HANDLE? in
            guard let point = try session.attribute(CKA_EC_POINT, of: handle) else { return nil }
            let id = try session.attribute(CKA_ID, of: handle) ?? []
            // Wrapped into an OCTET STRING as the standard says, or not.
            points[id, default: []].formUnion([point, PublicKeyInfo.octets(of: point) ?? point])
            return handle
        }
        return points
    }

    func objects(_ kind: CK_OBJECT_CLASS, _ id: [UInt8]?) throws(CryptokiError) -> [CK_OBJECT_HANDLE] {
        try session.objects(with: [Attribute(CKA_CLASS, kind)] + (id.map { [Attribute(CKA_ID, $0)] } ?? []))
    }

    /// Reads objects one by one.
    ///
    /// - Parameter maximum: How many are enough.
    /// - Throws: What is wrong with the token and not with an object.
    func each<T>(
        _ objects: [CK_OBJECT_HANDLE], maximum: Int = .max,
        _ read: (CK_OBJECT_HANDLE) throws(CryptokiError) -> T?
    ) throws(CryptokiError) -> Reading<T> {
        var reading = Reading<T>()
        for object in objects where reading.found.count < maximum {
            do throws(CryptokiError) {
                if let one = try read(object) { reading.found.append(one) }
            } catch {
                // An object that was deleted since the search is skipped.
                if error.endsConnection, !error.mayBeOfOneObject { throw error }
                reading.unreadable += 1
                if reading.errors.count < ObjectFailures.maximum { reading.errors.append(error) }
            }
        }
        // Some modules have nothing else to say of a token that is gone, or of a login that is.
        if reading.found.isEmpty, let error = reading.errors.first(where: \.mayBeOfOneObject) { throw error }
        return reading
    }

    private static func numbers(_ bytes: [UInt8]) -> [CK_ULONG] {
        let size = MemoryLayout<CK_ULONG>.size
        return bytes.withUnsafeBytes { buffer in
            (0..<buffer.count / size).map { buffer.loadUnaligned(fromByteOffset: $0 * size, as: CK_ULONG.self) }
        }
    }
}

extension CryptokiError {
    /// Whether the module may mean one object where it could also mean the token.
    var mayBeOfOneObject: Bool { isUnspecific || code == CKR_OBJECT_HANDLE_INVALID }
}

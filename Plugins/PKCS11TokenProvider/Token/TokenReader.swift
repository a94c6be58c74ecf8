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
        var attributes = [Attribute(CKA_CLASS, CKO_PRIVATE_KEY)]
        if let id { attributes.append(Attribute(CKA_ID, id)) }
        var keys: [PrivateKey] = []
        for handle in try session.objects(with: attributes) {
            // Asked of the object and not of the search: some modules do not search for it.
            guard try session.flag(CKA_SIGN, of: handle) ?? false else { continue }
            let mechanisms = try session.attribute(CKA_ALLOWED_MECHANISMS, of: handle)
            let id = try session.attribute(CKA_ID, of: handle) ?? []
            let isRSA = try session.number(CKA_KEY_TYPE, of: handle) == CKK_RSA
            keys.append(
                PrivateKey(
                    handle: handle, id: id,
                    label: try session.attribute(CKA_LABEL, of: handle) ?? [],
                    modulus: isRSA ? try session.attribute(CKA_MODULUS, of: handle) : nil,
                    points: isRSA ? [] : try points(id: id),
                    needsPINEachTime: try session.flag(CKA_ALWAYS_AUTHENTICATE, of: handle) ?? false,
                    allowedMechanisms: mechanisms.flatMap { $0.isEmpty ? nil : Set(Self.numbers($0)) }))
        }
        return keys
    }

    private func points(id: [UInt8]) throws(CryptokiError) -> [[UInt8]] {
        let attributes = [Attribute(CKA_CLASS, CKO_PUBLIC_KEY), Attribute(CKA_ID, id)]
        var points: [[UInt8]] = []
        for handle in try session.objects(with: attributes).prefix(8) {
            if let point = try session.attribute(CKA_EC_POINT, of: handle) { points.append(point) }
        }
        return points
    }

    /// Calls `body` with each certificate that has a key, or may have one: the keys are hidden before login.
    ///
    /// One certificate at a time is read: most of what is on a token may be nobody's identity.
    func candidates(
        for uri: TokenURI, keys: [PrivateKey], areKeysHidden: Bool, failures: inout [CertificateProviderError]
    ) throws(CryptokiError) -> [Candidate] {
        var attributes = [Attribute(CKA_CLASS, CKO_CERTIFICATE), Attribute(CKA_CERTIFICATE_TYPE, CK_ULONG(CKC_X_509))]
        if let id = uri.objectID { attributes.append(Attribute(CKA_ID, id)) }
        var candidates: [Candidate] = []
        for handle in try session.objects(with: attributes) {
            let id = try session.attribute(CKA_ID, of: handle) ?? []
            let matching = keys.filter { $0.id == id }
            guard !matching.isEmpty || areKeysHidden else { continue }
            let label = try session.attribute(CKA_LABEL, of: handle) ?? []
            // Keys may have labels of their own, or, in some modules, none.
            if let wanted = uri.objectLabel, wanted != label, !matching.contains(where: { $0.label == wanted }) {
                continue
            }
            guard let value = try session.attribute(CKA_VALUE, of: handle), !value.isEmpty else { continue }
            do throws(CertificateProviderError) {
                let certificate = try X509Certificate(derRepresentation: value)
                let key = matching.first { $0.mayBe(certificate.publicKey) }
                if key == nil, !areKeysHidden {
                    throw CertificateProviderError(
                        .keyMismatch,
                        "The private key with the id \(id.hexEncoded) is not the key of the certificate beside it.")
                }
                // The issuer's certificate may lie beside it; it is nobody's identity here.
                if key == nil, certificate.isAuthority { continue }
                candidates.append(
                    Candidate(
                        certificate: certificate, id: id, label: label, key: key,
                        uri: self.uri(of: key == nil ? CKO_CERTIFICATE : CKO_PRIVATE_KEY, id, key?.label ?? label, uri))
                )
            } catch {
                failures.append(error.in(slot, id))
            }
        }
        // A key's label is that of all its certificates; one that has the label itself is meant more than the others.
        let named = candidates.filter { $0.label == uri.objectLabel }
        return distinct(named.isEmpty ? candidates : named, uri)
    }

    /// Gives certificates of one key the URIs of certificates, which tell them apart.
    private func distinct(_ candidates: [Candidate], _ uri: TokenURI) -> [Candidate] {
        let counts = Dictionary(candidates.map { ($0.uri, 1) }, uniquingKeysWith: +)
        return candidates.map { candidate in
            guard counts[candidate.uri] != 1 else { return candidate }
            var copy = candidate
            copy.uri = self.uri(of: CKO_CERTIFICATE, candidate.id, candidate.label, uri)
            return copy
        }
    }

    private func uri(of kind: CK_OBJECT_CLASS, _ id: [UInt8], _ label: [UInt8], _ asked: TokenURI) -> String {
        TokenURI.text(of: slot.token, class: kind, id: id, label: label) ?? asked.text
    }

    /// Returns the chain of a leaf, as far as its issuers are on the token too.
    func chain(of leaf: X509Certificate) throws(CryptokiError) -> [X509Certificate] {
        var candidates: [X509Certificate] = []
        var last = leaf
        // As long as the longest chain that is built.
        for _ in 0..<16 where !last.isSelfIssued {
            let issuers = try certificates(withSubject: last.issuerDER).filter { !candidates.contains($0) }
            guard let next = issuers.first else { break }
            candidates += issuers
            last = next
        }
        return CertificateChain.build(from: leaf, among: candidates)
    }

    private func certificates(withSubject subject: [UInt8]) throws(CryptokiError) -> [X509Certificate] {
        let attributes = [Attribute(CKA_CLASS, CKO_CERTIFICATE), Attribute(CKA_SUBJECT, subject)]
        var certificates: [X509Certificate] = []
        for handle in try session.objects(with: attributes).prefix(8) {
            guard let value = try session.attribute(CKA_VALUE, of: handle) else { continue }
            if let certificate = try? X509Certificate(derRepresentation: value) { certificates.append(certificate) }
        }
        return certificates
    }

    /// The token's mechanisms.
    func mechanisms() throws(CryptokiError) -> Set<CK_MECHANISM_TYPE> {
        var count: CK_ULONG = 0
        try slot.module.call("C_GetMechanismList") { $0.C_GetMechanismList?(slot.id, nil, &count) }
        var list = [CK_MECHANISM_TYPE](repeating: 0, count: min(Int(clamping: count), 4096))
        guard !list.isEmpty else { return [] }
        count = CK_ULONG(list.count)
        try slot.module.call("C_GetMechanismList") { $0.C_GetMechanismList?(slot.id, &list, &count) }
        return Set(list.prefix(Int(clamping: count)))
    }

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
        if let modulus { return publicKey.rsaModulus == Array(modulus.drop { $0 == 0 }) }
        // Wrapped into an OCTET STRING as the standard says, or not.
        return points.isEmpty || points.contains { $0.suffix(publicKey.keyBits.count) == publicKey.keyBits[...] }
    }
}

extension CertificateProviderError {
    fileprivate func `in`(_ slot: Slot, _ id: [UInt8]) -> Self {
        var copy = self
        copy.message = "On the token '\(slot.displayName)', id \(id.hexEncoded): \(message)"
        return copy
    }
}

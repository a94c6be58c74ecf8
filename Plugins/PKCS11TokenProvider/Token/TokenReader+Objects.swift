import CP11Kit
import CertificateProviding

extension TokenReader {
    /// Returns the URIs of what is on the token besides identities: issuers' certificates, halves, data. The objects of
    /// an identity have its URI but for the type.
    func otherObjects(than identities: [Candidate], for uri: PKCS11URI) throws(CryptokiError) -> [String] {
        let known = Set(identities.map(\.handle) + identities.compactMap { $0.key?.handle })
        let ids = Set(identities.map(\.id))
        let attributes = [Attribute(CKA_TOKEN, true)] + (uri.objectID.map { [Attribute(CKA_ID, $0)] } ?? [])
        let others = try session.objects(with: attributes).filter { !known.contains($0) }
        return try each(others) { handle throws(CryptokiError) -> String? in
            // Vendors have classes of their own, which no URI can name (RFC 7512, section 2.3).
            guard let kind = try session.number(CKA_CLASS, of: handle), Self.named.contains(kind) else { return nil }
            let id = try session.attribute(CKA_ID, of: handle) ?? []
            if kind == CKO_PUBLIC_KEY, ids.contains(id) { return nil }
            let label = try session.attribute(CKA_LABEL, of: handle) ?? []
            return uri.objectLabel ?? label == label ? self.uri(of: kind, id, label) : nil
        }.found
    }

    private static let named: Set<CK_OBJECT_CLASS> = [
        CKO_CERTIFICATE, CKO_PUBLIC_KEY, CKO_PRIVATE_KEY, CKO_SECRET_KEY, CKO_DATA,
    ]
}

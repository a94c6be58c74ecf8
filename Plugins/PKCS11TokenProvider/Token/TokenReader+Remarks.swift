import CP11Kit
import CertificateProviding

extension TokenReader {
    /// The objects that were found on a token.
    struct Contents {
        let certificates: Certificates
        let keys: [PrivateKey]
        let mechanisms: TokenMechanisms
        var candidates: [Candidate] { certificates.candidates }
    }

    /// The number of remarks of one kind that a person reads.
    static let maximumRemarks = 20

    /// Returns remarks about a token for a person: objects that may be halves of identities, and the limits of its identities.
    func remarks(on contents: Contents, for uri: PKCS11URI) throws(CryptokiError) -> [String] {
        let weak = contents.candidates.filter { signsWithoutPSS($0, contents.mechanisms) }
        let remarks = weak.prefix(Self.maximumRemarks).map { candidate in
            "The token '\(slot.displayName)' signs for '\(candidate.certificate.subject)' only with RSA PKCS#1 "
                + "v1.5, which TLS 1.3 does not permit (RFC 8446, section 4.2.3): use TLS 1.2 with this identity."
        }
        return try halves(of: contents, for: uri) + remarks + rest(weak.count - remarks.count, "identities like these")
    }

    private func rest(_ count: Int, _ what: String) -> [String] {
        count > 0 ? ["The token '\(slot.displayName)' has \(count) more \(what)."] : []
    }

    private func signsWithoutPSS(_ candidate: Candidate, _ mechanisms: TokenMechanisms) -> Bool {
        let schemes = SigningMechanism.all(
            for: candidate.certificate.publicKey, mechanisms: mechanisms, allowed: candidate.key?.allowedMechanisms
        ).map(\.scheme)
        return !schemes.isEmpty
            && schemes.allSatisfy { [.rsaPKCS1SHA256, .rsaPKCS1SHA384, .rsaPKCS1SHA512].contains($0) }
    }

    /// Whether one of these certificates is on the token itself.
    private func haveValue(_ certificates: [CK_OBJECT_HANDLE]) throws(CryptokiError) -> Bool {
        for certificate in certificates {
            if try session.attribute(CKA_VALUE, of: certificate)?.isEmpty == false { return true }
        }
        return false
    }

    private func halves(of contents: Contents, for uri: PKCS11URI) throws(CryptokiError) -> [String] {
        let certificates = try each(contents.certificates.keyless) {
            handle throws(CryptokiError) -> String? in
            let label = try session.attribute(CKA_LABEL, of: handle) ?? []
            guard uri.objectLabel ?? label == label,
                let value = try session.attribute(CKA_VALUE, of: handle),
                let certificate = try? X509Certificate(derRepresentation: value), !certificate.isAuthority
            else { return nil }
            let id = try session.attribute(CKA_ID, of: handle) ?? []
            return
                "The token has no private key for the certificate '\(self.uri(of: CKO_CERTIFICATE, id, label))'."
        }
        // The certificates and keys without a match, except those that a remark names already.
        let ids = Set(contents.candidates.flatMap { [$0.id, $0.key?.id ?? $0.id] })
        let keys = contents.keys.filter { uri.objectLabel ?? $0.label == $0.label && !ids.contains($0.id) }
        var lonely: [String] = []
        for key in keys.prefix(Self.maximumRemarks) {
            let objects = try objects(CKO_CERTIFICATE, key.id)
            let name = "the private key '\(self.uri(of: CKO_PRIVATE_KEY, key.id, key.label))'"
            if objects.isEmpty {
                lonely.append("The token has no certificate for \(name).")
            } else if try !haveValue(objects) {
                lonely.append(
                    "The token does not hold the certificate for \(name), but at most its URL (CKA_URL); write the "
                        + "certificate to the token.")
            }
        }
        let all = certificates.found + lonely
        let named = all.prefix(Self.maximumRemarks)
        let unread =
            contents.certificates.keylessCount - contents.certificates.keyless.count
            + max(0, keys.count - Self.maximumRemarks)
        return named + rest(all.count - named.count + unread, "certificates or keys like these")
    }

    /// Returns the URIs of the objects on the token besides identities: issuers' certificates, halves, data. The objects of an
    /// identity have its URI but for the type.
    func otherObjects(than identities: [Candidate], for uri: PKCS11URI) throws(CryptokiError) -> [String] {
        let known = Set(identities.map(\.handle) + identities.compactMap { $0.key?.handle })
        let ids = Set(identities.flatMap { [$0.id, $0.key?.id ?? $0.id] })
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

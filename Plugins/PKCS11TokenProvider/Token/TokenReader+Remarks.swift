import CP11Kit
import CertificateProviding

extension TokenReader {
    /// What was found on a token.
    struct Contents {
        let candidates: [Candidate]
        let keys: [PrivateKey]
        /// Certificates without a key.
        let keyless: [CK_OBJECT_HANDLE]
        let mechanisms: TokenMechanisms
    }

    /// What a person should hear of a token beside its identities: the halves of some that might have been, and what an
    /// identity cannot do.
    func remarks(on contents: Contents, for uri: TokenURI) throws(CryptokiError) -> [String] {
        try halves(of: contents, for: uri)
            + contents.candidates.filter { signsWithoutPSS($0, contents.mechanisms) }.map { candidate in
                "The token '\(slot.displayName)' signs for '\(candidate.certificate.subject)' only with RSA in the form of "
                    + "PKCS#1 v1.5, which TLS 1.3 does not permit (RFC 8446, section 4.2.3): its handshakes need TLS 1.2."
            }
    }

    private func signsWithoutPSS(_ candidate: Candidate, _ mechanisms: TokenMechanisms) -> Bool {
        let schemes = SigningMechanism.all(
            for: candidate.certificate.publicKey, mechanisms: mechanisms, allowed: candidate.key?.allowedMechanisms
        ).map(\.scheme)
        return !schemes.isEmpty
            && schemes.allSatisfy { [.rsaPKCS1SHA256, .rsaPKCS1SHA384, .rsaPKCS1SHA512].contains($0) }
    }

    /// As many are named as anybody reads.
    private static let maximumHalves = 20

    private func halves(of contents: Contents, for uri: TokenURI) throws(CryptokiError) -> [String] {
        let (certificates, _) = try each(Array(contents.keyless.prefix(Self.maximumHalves))) {
            handle throws(CryptokiError) -> String? in
            let label = try session.attribute(CKA_LABEL, of: handle) ?? []
            guard uri.objectLabel ?? label == label,
                let value = try session.attribute(CKA_VALUE, of: handle),
                let certificate = try? X509Certificate(derRepresentation: value), !certificate.isAuthority
            else { return nil }
            let id = try session.attribute(CKA_ID, of: handle) ?? []
            return "There is no private key for the certificate '\(self.uri(of: CKO_CERTIFICATE, id, label, uri))'."
        }
        // What no certificate was found for, and none is said to be the wrong one for.
        let ids = Set(contents.candidates.map(\.id))
        let keys = contents.keys.filter { uri.objectLabel ?? $0.label == $0.label && !ids.contains($0.id) }
        var lonely: [String] = []
        for key in keys.prefix(Self.maximumHalves)
        where try session.objects(with: [Attribute(CKA_CLASS, CKO_CERTIFICATE), Attribute(CKA_ID, key.id)]).isEmpty {
            lonely.append(
                "There is no certificate for the private key '\(self.uri(of: CKO_PRIVATE_KEY, key.id, key.label, uri))'."
            )
        }
        let all = certificates + lonely
        let unread = max(0, contents.keyless.count - Self.maximumHalves) + max(0, keys.count - Self.maximumHalves)
        let rest = all.count - Self.maximumHalves
        guard rest > 0 || unread > 0 else { return all }
        return all.prefix(Self.maximumHalves)
            + ["On the token '\(slot.displayName)' are \(max(0, rest) + unread) more certificates or keys like these."]
    }
}

import CP11Kit
import CertificateProviding

extension TokenReader {
    /// Returns each certificate that has a key, or may have one: the keys are hidden before login.
    ///
    /// One certificate at a time is read: most of what is on a token may be nobody's identity.
    ///
    /// - Parameters:
    ///   - maximum: How many are enough.
    ///   - keyless: Gets the certificates that have no key.
    ///   - failures: Gets what is wrong with single objects.
    func candidates(
        for uri: TokenURI, keys: [PrivateKey], areKeysHidden: Bool, maximum: Int = .max,
        keyless: (CK_OBJECT_HANDLE) -> Void = { _ in }, failures: inout [CertificateProviderError]
    ) throws(CryptokiError) -> [Candidate] {
        var attributes = [Attribute(CKA_CLASS, CKO_CERTIFICATE), Attribute(CKA_CERTIFICATE_TYPE, CK_ULONG(CKC_X_509))]
        if let id = uri.objectID { attributes.append(Attribute(CKA_ID, id)) }
        var problems: [CertificateProviderError] = []
        var strangers: [[UInt8]] = []
        let (candidates, unreadable) = try each(session.objects(with: attributes), maximum: maximum) {
            handle throws(CryptokiError) -> Candidate? in
            let id = try session.attribute(CKA_ID, of: handle) ?? []
            let matching = keys.filter { $0.id == id }
            guard !matching.isEmpty || areKeysHidden else {
                keyless(handle)
                return nil
            }
            let label = try session.attribute(CKA_LABEL, of: handle) ?? []
            // Keys may have labels of their own, or, in some modules, none.
            if let wanted = uri.objectLabel, wanted != label, !matching.contains(where: { $0.label == wanted }) {
                return nil
            }
            guard let value = try session.attribute(CKA_VALUE, of: handle), !value.isEmpty else { return nil }
            let certificate: X509Certificate
            do throws(CertificateProviderError) { certificate = try X509Certificate(derRepresentation: value) } catch {
                problems.append(error.in(slot, id))
                return nil
            }
            let key = matching.first { $0.mayBe(certificate.publicKey) }
            if key == nil, !areKeysHidden {
                strangers.append(id)
                return nil
            }
            // The issuer's certificate may lie beside it; it is nobody's identity here.
            if key == nil, certificate.isAuthority { return nil }
            return Candidate(
                certificate: certificate, id: id, label: label, key: key,
                uri: self.uri(of: key == nil ? CKO_CERTIFICATE : CKO_PRIVATE_KEY, id, key?.label ?? label, uri))
        }
        failures += unreadable + problems
        // Beside the key's own certificate another one may have the id, such as its issuer's.
        for id in Set(strangers) where !candidates.contains(where: { $0.id == id }) {
            let error = CertificateProviderError(
                .keyMismatch,
                "The private key with the id \(id.hexEncoded) is not the key of the certificate beside it.")
            failures.append(error.in(slot, id))
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

    func uri(of kind: CK_OBJECT_CLASS, _ id: [UInt8], _ label: [UInt8], _ asked: TokenURI) -> String {
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
}

extension CertificateProviderError {
    fileprivate func `in`(_ slot: Slot, _ id: [UInt8]) -> Self {
        var copy = self
        copy.message = "On the token '\(slot.displayName)', id \(id.hexEncoded): \(message)"
        return copy
    }
}

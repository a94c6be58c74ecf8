/// Puts certificates that came in any order into a chain.
public enum CertificateChain {
    /// Longer chains are cut: no public or private hierarchy in use comes near, and a loop ends here.
    static let maximumLength = 16

    /// Returns `leaf` and those of `candidates` that lead from it towards a root, each the issuer of the one before.
    ///
    /// Issuers are found by name and, where both sides state one, by key identifier (RFC 5280, section 4.2.1.1). The
    /// signatures are not checked: the peer does that, and against its own trust anchors. A root among the candidates
    /// stays in the chain; candidates that are no part of it are left out.
    public static func build(from leaf: X509Certificate, among candidates: [X509Certificate]) -> [X509Certificate] {
        var chain = [leaf]
        while let last = chain.last, !last.isSelfIssued, chain.count < maximumLength {
            let issuers = candidates.filter { last.isIssued(by: $0) && !chain.contains($0) }
            // Of two certificates for the same authority, such as an old and a renewed one, the later one.
            guard let issuer = issuers.max(by: { $0.notValidAfter < $1.notValidAfter }) else { break }
            chain.append(issuer)
        }
        return chain
    }
}

extension X509Certificate {
    fileprivate func isIssued(by issuer: X509Certificate) -> Bool {
        guard issuerDER == issuer.subjectDER else { return false }
        guard let authorityKeyIdentifier, let identifier = issuer.subjectKeyIdentifier else { return true }
        return authorityKeyIdentifier == identifier
    }
}

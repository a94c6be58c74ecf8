import X509

/// Builds a chain from certificates in any order.
public enum CertificateChain {
    /// The maximum length of a chain. Hierarchies in use are much shorter; the limit ends loops.
    static let maximumLength = 16

    /// Returns `leaf`, followed by its issuers from `candidates`, up to the root if it is among them.
    ///
    /// Issuers are found by name and, if both certificates have one, by key identifier (RFC 5280, section 4.2.1.1).
    /// Signatures are verified only to choose among several issuers: the peer verifies them against its own trust anchors. A
    /// cross-signed certificate that lasts as long as the leaf comes before a root: it serves peers that know either CA.
    /// Candidates outside the chain are left out.
    public static func build(from leaf: X509Certificate, among candidates: [X509Certificate]) -> [X509Certificate] {
        build(from: leaf) { _ in candidates }
    }

    /// Returns the chain of the certificate that certifies a key, from certificates in any order, such as a file with the root
    /// first. If several certify it, the one that was issued last counts.
    ///
    /// - Returns: The certificates as they are if none certifies the key.
    public static func build(
        for publicKey: PublicKeyInfo, among certificates: [X509Certificate]
    ) -> [X509Certificate] {
        let leaves = certificates.filter { $0.publicKey == publicKey }
        guard let leaf = leaves.max(by: { $0.notValidBefore < $1.notValidBefore }) else { return certificates }
        return build(from: leaf, among: certificates)
    }

    /// Builds a chain as ``build(from:among:)`` does, of certificates that are looked up, such as on a token.
    ///
    /// - Parameter candidates: Gets a certificate of the chain, and returns those among which its issuer may be.
    /// - Throws: What `candidates` throws.
    public static func build<Failure: Error>(
        from leaf: X509Certificate, candidates: (X509Certificate) throws(Failure) -> [X509Certificate]
    ) throws(Failure) -> [X509Certificate] {
        var chain = [leaf]
        while let last = chain.last, !last.isRoot, chain.count < maximumLength {
            // If two certificates are for the same authority, such as an old and a renewed one, the later one counts.
            let issuers = try candidates(last).filter { last.isIssued(by: $0) && !chain.contains($0) }
                .sorted { first, second in
                    let (isFirst, isSecond) = (first.isCrossSigned(for: leaf), second.isCrossSigned(for: leaf))
                    return isFirst != isSecond ? isFirst : first.notValidAfter > second.notValidAfter
                }
            guard let first = issuers.first else { break }
            // Two keys of an authority may have one name, and no key identifier.
            let signer = issuers.count > 1 ? issuers.prefix(maximumLength).first { $0.hasSigned(last) } : nil
            chain.append(signer ?? first)
        }
        return chain
    }
}

extension X509Certificate {
    /// Whether this is a root, or a leaf that has signed itself: self-issued, and by the same key. A CA that has changed its key
    /// certifies the new one with the old one, and a leaf may have the name of its CA: peers need the issuers of both.
    package var isRoot: Bool {
        guard isSelfIssued else { return false }
        if let authorityKeyIdentifier, let subjectKeyIdentifier {
            return authorityKeyIdentifier == subjectKeyIdentifier
        }
        // One that cannot be read has no issuer that could be found.
        return (try? certificate()) == nil || hasSigned(self)
    }

    /// Whether the signature of a certificate is by this one's key; false for one that cannot be read.
    fileprivate func hasSigned(_ issued: X509Certificate) -> Bool {
        guard let issuer = try? certificate(), let issued = try? issued.certificate() else { return false }
        return issuer.publicKey.isValidSignature(issued.signature, for: issued)
    }

    /// Whether another CA has issued it, for as long as the leaf of a chain lasts and for all uses.
    fileprivate func isCrossSigned(for leaf: X509Certificate) -> Bool {
        !isRoot && notValidAfter >= leaf.notValidAfter && extendedKeyUsage == nil
    }

    fileprivate func isIssued(by issuer: X509Certificate) -> Bool {
        guard issuerName == issuer.subjectName else { return false }
        guard let authorityKeyIdentifier, let identifier = issuer.subjectKeyIdentifier else { return true }
        return authorityKeyIdentifier == identifier
    }
}

/// A certificate chain, the key of its leaf, and where both came from.
///
/// Creating one checks that the leaf's public key is the key's, so a mixed pair cannot exist as a value.
public struct Identity: Sendable {
    /// Leaf first, each next certificate the issuer of the one before. Never empty.
    public let certificateChain: [X509Certificate]
    public let key: any IdentityKey
    public let provenance: Provenance

    /// Which provider an identity came from, and what it is called there.
    public struct Provenance: Sendable, Hashable {
        public var provider: ProviderID
        public var alias: String?
        /// Where it was found, for people: a path, a token's URI, a server.
        public var source: String?

        public init(provider: ProviderID, alias: String? = nil, source: String? = nil) {
            self.provider = provider
            self.alias = alias
            self.source = source
        }
    }

    /// RSA keys below this size are listed but not used: NIST SP 800-131A disallows them, and current TLS stacks
    /// refuse them at the peer, where the reason is harder to see.
    public static let minimumRSAKeySize = 2048

    /// - Throws: `notFound` for an empty chain, `keyMismatch` when the leaf certifies another key, and
    ///   `unsupportedAlgorithm` for an RSA key below ``minimumRSAKeySize``.
    public init(
        certificateChain: [X509Certificate], key: any IdentityKey, provenance: Provenance
    ) throws(CertificateProviderError) {
        guard let leaf = certificateChain.first else {
            throw CertificateProviderError(
                .notFound, "There is no certificate for the key.", provider: provenance.provider)
        }
        guard leaf.publicKey.isSameKey(as: key.publicKey) else {
            throw CertificateProviderError(
                .keyMismatch,
                "The certificate '\(leaf.subject)' is for another key than the one it came with; obtain a matching pair.",
                provider: provenance.provider)
        }
        try Self.checkStrength(of: leaf.publicKey, subject: leaf.subject, provider: provenance.provider)
        self.certificateChain = certificateChain
        self.key = key
        self.provenance = provenance
    }

    /// The leaf: the certificate that names this identity.
    public var certificate: X509Certificate { certificateChain[0] }

    /// Checks what ``init(certificateChain:key:provenance:)`` demands of a public key's size.
    public static func checkStrength(
        of publicKey: PublicKeyInfo, subject: String, provider: ProviderID
    ) throws(CertificateProviderError) {
        guard publicKey.algorithm == .rsa, publicKey.bits < minimumRSAKeySize else { return }
        throw CertificateProviderError(
            .unsupportedAlgorithm,
            """
            The RSA key of '\(subject)' has \(publicKey.bits) bits; at least \(minimumRSAKeySize) are needed. \
            Have the certificate issued anew with a larger key.
            """,
            provider: provider)
    }
}

extension Identity: CustomStringConvertible {
    public var description: String {
        "\(certificate.subject) (\(certificate.publicKey.displayName), from \(provenance.provider))"
    }
}

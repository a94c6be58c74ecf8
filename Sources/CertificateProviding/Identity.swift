/// A certificate chain with the private key of its leaf, the CA certificates that came with them, and their origin.
///
/// The initialiser checks that the leaf's public key matches the private key.
public struct Identity: Sendable {
    /// Leaf first, each certificate followed by its issuer, without the root. Never empty; a self-signed leaf is alone.
    public let certificateChain: [X509Certificate]
    /// The root that its source has at the end of the chain; `nil` for none, and for a self-signed leaf.
    package let root: X509Certificate?
    /// The private key of the leaf.
    public let key: any IdentityKey
    /// The CA certificates that came with the identity; `nil` if its source has none.
    public let trust: TrustBundle?
    /// The side of TLS that the identity is for. Its certificate need not permit that: see ``obstacle(at:)``.
    public let usage: IdentityUsage
    /// The provider and the source that the identity comes from.
    public let provenance: Provenance

    /// The origin of an identity: its provider, and its name there.
    public struct Provenance: Sendable, Hashable {
        /// The provider that returned the identity.
        public var provider: ProviderID
        /// The identity's name in its source; `nil` if it has none.
        public var alias: String?
        /// The source for display: a path, a token's URI or a server.
        public var source: String?

        /// Creates a provenance.
        public init(provider: ProviderID, alias: String? = nil, source: String? = nil) {
            self.provider = provider
            self.alias = alias
            self.source = source
        }
    }

    /// The sizes of RSA keys that are used, in bits. Others are listed only. NIST SP 800-131A disallows smaller ones, and
    /// TLS peers refuse them with an error that is harder to understand. BoringSSL and swift-crypto load no larger ones.
    static let rsaKeySizes = 2048...8192

    /// Creates an identity and checks that chain and key match.
    ///
    /// - Parameters:
    ///   - certificateChain: A root at its end is left out.
    ///   - usage: The value of the provider's parameter ``IdentityUsage/parameter``.
    /// - Throws: `notFound` for an empty chain, `keyMismatch` if the leaf certifies another key, and
    ///   `unsupportedAlgorithm` for an RSA key of less than 2048 or more than 8192 bits.
    public init(
        certificateChain: [X509Certificate], key: any IdentityKey, trust: TrustBundle? = nil,
        usage: IdentityUsage = .client, provenance: Provenance
    ) throws(ProviderError) {
        guard let leaf = certificateChain.first else {
            throw ProviderError(
                .notFound, "No certificate was found for the key.", provider: provenance.provider)
        }
        guard leaf.publicKey == key.publicKey else {
            throw ProviderError(
                .keyMismatch,
                "The certificate '\(leaf.subject)' does not match the private key; obtain a matching pair.",
                provider: provenance.provider)
        }
        try leaf.requireUsableKeySize(provider: provenance.provider)
        self.certificateChain = CertificateChain.withoutRoot(certificateChain)
        root = self.certificateChain.count < certificateChain.count ? certificateChain.last : nil
        self.key = key
        self.trust = trust
        self.usage = usage
        self.provenance = provenance
    }

    /// The leaf certificate.
    public var certificate: X509Certificate { certificateChain[0] }

    /// Whether a service that uses `other` has nothing to take over: certificate and trust bundle are the same.
    ///
    /// - Parameter withChain: Whether the issuers in the chain must be the same too.
    package func isSame(as other: Identity, withChain: Bool = false) -> Bool {
        certificate == other.certificate && trust == other.trust
            && (!withChain || certificateChain == other.certificateChain)
    }

}

extension X509Certificate {
    /// Throws if an RSA key has not 2048 to 8192 bits. Other keys pass.
    ///
    /// - Parameter provider: The provider that the error names.
    /// - Throws: `unsupportedAlgorithm`.
    public func requireUsableKeySize(provider: ProviderID) throws(ProviderError) {
        let rsaKeySizes = Identity.rsaKeySizes
        guard publicKey.algorithm == .rsa, !rsaKeySizes.contains(publicKey.bits) else { return }
        let isSmall = publicKey.bits < rsaKeySizes.lowerBound
        throw ProviderError(
            .unsupportedAlgorithm,
            "The RSA key of '\(subject)' has \(publicKey.bits) bits; "
                + (isSmall
                    ? "at least \(rsaKeySizes.lowerBound) are required. Have a certificate issued for a larger key."
                    : "at most \(rsaKeySizes.upperBound) are supported. Have a certificate issued for a smaller key."),
            provider: provider)
    }
}

extension Identity: CustomStringConvertible {
    public var description: String {
        "\(certificate.subject) (\(certificate.publicKey.displayName), from \(provenance.provider))"
    }
}

public import CertificateProviding

/// Signs CMS SignedData (RFC 5652, section 5) with one signer, whose key may be anywhere: in memory, in a token, in a plugin.
///
/// The key signs some hundred bytes, the signed attributes; of the content only a digest is needed. Verifying is left to others.
public struct CMSSigner: Sendable {
    /// The certificates of the message, leaf first.
    public let certificateChain: [X509Certificate]
    /// The scheme that the key signs with.
    public let scheme: SignatureScheme
    private let key: any IdentityKey
    private let leaf: X509Certificate
    private let algorithm: CMSAlgorithm

    /// Creates a signer. Does not use the key.
    ///
    /// - Parameters:
    ///   - certificateChain: Leaf first. The message has all of them.
    ///   - key: The key of the leaf.
    ///   - scheme: Ed25519 too (RFC 8419).
    /// - Throws: `notFound` for an empty chain, `unsupportedAlgorithm` for a scheme that CMS does not have.
    public init(
        certificateChain: [X509Certificate], key: any IdentityKey, scheme: SignatureScheme
    ) throws(ProviderError) {
        guard let leaf = certificateChain.first else {
            throw ProviderError(
                .notFound, "A CMS message needs the signer's certificate, and there is none.")
        }
        guard let algorithm = CMSAlgorithm(scheme) else {
            throw ProviderError(.unsupportedAlgorithm, "CMS has no signatures by the scheme \(scheme).")
        }
        (self.certificateChain, self.leaf, self.key) = (certificateChain, leaf, key)
        (self.scheme, self.algorithm) = (scheme, algorithm)
    }

    /// The hash function of the content's digest: that of the scheme, and SHA-512 for Ed25519 (RFC 8419, section 3).
    public var digestAlgorithm: DigestAlgorithm { algorithm.digest }

    /// Signs content by its digest, and verifies the signature. Suspends for as long as the key takes.
    ///
    /// - Parameters:
    ///   - digest: Of the content, by ``digestAlgorithm``.
    ///   - attributes: Signed attributes beside content-type and message-digest, which every message has.
    /// - Throws: `malformedData` for a digest of another length, `keyMismatch` if the signature does not verify with the leaf, and
    ///   errors of the key.
    public func signature(
        ofDigest digest: [UInt8], attributes: [CMSSignerAttribute] = []
    ) async throws(ProviderError) -> CMSSignature {
        guard digest.count == digestAlgorithm.size else {
            throw ProviderError(
                .malformedData,
                "The digest to sign has \(digest.count) bytes instead of \(digestAlgorithm.size); hash the content with "
                    + "\(digestAlgorithm).")
        }
        let attributes = signed(digest, attributes)
        // The signature covers a SET, and the message has another tag (section 5.4).
        let set = DER.value(DER.set, attributes)
        let value = try await key.signature(for: set, using: scheme)
        guard leaf.publicKey.isValidSignature(value, for: set, using: scheme) else {
            throw ProviderError(
                .keyMismatch,
                "The signature does not verify with the certificate '\(leaf.subject)': its key store has another key, or is "
                    + "faulty.")
        }
        return message(attributes, value)
    }

    /// Returns an upper bound for the bytes of a detached message, before there is a signature: the exact size but for ECDSA, whose
    /// signatures vary by a few bytes.
    ///
    /// - Parameter attributes: The signed attributes for ``signature(ofDigest:attributes:)``.
    public func maximumSize(attributes: [CMSSignerAttribute] = []) -> Int {
        let digest = [UInt8](repeating: 0, count: digestAlgorithm.size)
        let value = [UInt8](repeating: 0, count: algorithm.maximumSize(of: leaf.publicKey))
        return message(signed(digest, attributes), value).derRepresentation().count
    }

    private func signed(_ digest: [UInt8], _ attributes: [CMSSignerAttribute]) -> [UInt8] {
        let all = [.contentType, .messageDigest(digest)] + attributes
        return all.map(\.derRepresentation).sorted { $0.lexicographicallyPrecedes($1) }.flatMap(\.self)
    }

    private func message(_ attributes: [UInt8], _ value: [UInt8]) -> CMSSignature {
        let issuerAndSerialNumber = leaf.issuerDER + DER.value(DER.integer, leaf.serialNumber)
        return CMSSignature(
            certificates: certificateChain.map(\.derRepresentation), digestAlgorithm: algorithm.digestIdentifier,
            signer: DER.value(DER.integer, [1]) + DER.value(DER.sequence, issuerAndSerialNumber)
                + algorithm.digestIdentifier + DER.value(DER.context(0), attributes) + algorithm.signatureIdentifier,
            value: value)
    }
}

public import CertificateProviding
import FoundationEssentials
import Signing

/// A key pair with a name and without a certificate. Has the public key; the private one is in its key store.
public struct NamedKey: Sendable {
    /// The name.
    public let name: KeyName
    /// The public key.
    public let publicKey: PublicKeyInfo
    /// The URI of the private key in its key store.
    public let uri: String
    /// Whether each use of the private key asks a person.
    public let isConfirmed: Bool

    /// The type of the pair; `nil` for a key that was imported and has none of the types that can be made.
    public var type: KeyType? { KeyType.allCases.first { $0.fits(publicKey) } }

    /// The public key as base64 of its `SubjectPublicKeyInfo` (RFC 5280, section 4.1.2.7), on one line.
    public var publicKeyBase64: String { Data(publicKey.derRepresentation).base64EncodedString() }

    /// The public key in PEM (RFC 7468, section 13), with a final line ending.
    public var publicKeyPEM: String {
        let digits = Data(publicKey.derRepresentation)
            .base64EncodedString(options: [.lineLength64Characters, .endLineWithLineFeed])
        return "-----BEGIN PUBLIC KEY-----\n\(digits)\n-----END PUBLIC KEY-----\n"
    }

    /// Returns the scheme of the pair's signatures.
    ///
    /// - Parameter hash: Of an RSA key, SHA-512 or SHA-256; `nil` for SHA-512, and for the scheme of another key, which is its
    ///   own: that of the curve, or Ed25519.
    /// - Throws: `unsupportedAlgorithm` for another hash, and for a key without a scheme.
    public func scheme(_ hash: DigestAlgorithm? = nil) throws(ProviderError) -> SignatureScheme {
        let scheme: SignatureScheme? =
            switch (publicKey.algorithm, publicKey.curve) {
            case (.rsa, _): publicKey.isRestrictedToPSS ? Self.pss[hash ?? .sha512] : Self.pkcs1[hash ?? .sha512]
            case (.ec, "P-256"): .ecdsaP256SHA256
            case (.ec, "P-384"): .ecdsaP384SHA384
            case (.ec, "P-521"): .ecdsaP521SHA512
            case (.ed25519, _): .ed25519
            default: nil
            }
        guard let scheme, hash == nil || scheme.digestAlgorithm == hash else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The key pair '\(name.shown)' (\(publicKey.displayName)) does not sign with "
                    + "\(hash.map { "\($0)" } ?? "any scheme"); leave the hash out. Only an RSA key has a choice: SHA-512 or SHA-256."
            )
        }
        return scheme
    }

    private static let pkcs1: [DigestAlgorithm: SignatureScheme] = [
        .sha256: .rsaPKCS1SHA256, .sha512: .rsaPKCS1SHA512,
    ]
    private static let pss: [DigestAlgorithm: SignatureScheme] = [
        .sha256: .rsaPSSPSSSHA256, .sha512: .rsaPSSPSSSHA512,
    ]
}

extension NamedKey {
    /// Reads content to be signed by the private key. Blocks.
    ///
    /// - Throws: `unsupportedAlgorithm` for a scheme that the key does not have, and for more content than it takes as a whole; errors
    ///   of the content.
    func message(
        _ content: SigningContent, for key: any IdentityKey, _ scheme: SignatureScheme
    ) throws(ProviderError) -> RawMessage {
        guard key.signatureSchemes.contains(scheme) else {
            let others = key.signatureSchemes.map(\.description).joined(separator: ", ")
            throw ProviderError(
                .unsupportedAlgorithm,
                "The private key of '\(name.shown)' does not sign with \(scheme); its key store can do: \(others).")
        }
        return try RawMessage(content, for: key, scheme, isHashed: isConfirmed)
    }

    /// Lets the private key sign, and verifies the signature.
    func signature(of message: RawMessage) async throws(ProviderError) -> [UInt8] {
        if let signature = try await message.signature(verifiedBy: publicKey) { return signature }
        throw ProviderError(
            .keyMismatch,
            "The signature that the private key of '\(name.shown)' has made does not verify with the public key, and is "
                + "dropped; check the key store (\(DisplayText.visible(uri))).")
    }
}

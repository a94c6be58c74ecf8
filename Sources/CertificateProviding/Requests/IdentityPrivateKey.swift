import FoundationEssentials
import SwiftASN1
public import X509

extension Certificate.PrivateKey {
    /// Wraps the key of an identity for swift-certificates, to sign requests and certificates with its `async`
    /// functions. Its synchronous functions throw `operationNotAllowed` with this key.
    ///
    /// - Throws: `unsupportedAlgorithm` for a type of key that swift-certificates does not support.
    public init(_ key: any IdentityKey) throws(ProviderError) {
        self.init(try IdentityPrivateKey(key))
    }
}

/// See ``X509/Certificate/PrivateKey/init(_:)``.
struct IdentityPrivateKey: CustomPrivateKey {
    let key: any IdentityKey
    let publicKey: Certificate.PublicKey

    init(_ key: any IdentityKey) throws(ProviderError) {
        self.key = key
        do {
            publicKey = try Certificate.PublicKey(derEncoded: key.publicKey.derRepresentation)
        } catch {
            throw ProviderError(
                .unsupportedAlgorithm,
                "Keys of type \(key.publicKey.displayName) are not supported in certificate requests.",
                underlying: error)
        }
    }

    static func == (left: Self, right: Self) -> Bool { left.publicKey == right.publicKey }
    func hash(into hasher: inout Hasher) { hasher.combine(publicKey) }

    /// The schemes that swift-certificates can encode. RSASSA-PSS is not among them.
    private static let schemes: [(algorithm: Certificate.SignatureAlgorithm, scheme: SignatureScheme)] = [
        (.ecdsaWithSHA256, .ecdsaP256SHA256), (.ecdsaWithSHA384, .ecdsaP384SHA384),
        (.ecdsaWithSHA512, .ecdsaP521SHA512), (.sha256WithRSAEncryption, .rsaPKCS1SHA256),
        (.sha384WithRSAEncryption, .rsaPKCS1SHA384), (.sha512WithRSAEncryption, .rsaPKCS1SHA512),
        (.ed25519, .ed25519),
    ]

    var supportedSignatureAlgorithms: [Certificate.SignatureAlgorithm] {
        Self.schemes.filter { key.signatureSchemes.contains($0.scheme) }.map(\.algorithm)
    }

    var defaultSignatureAlgorithm: Certificate.SignatureAlgorithm {
        supportedSignatureAlgorithms.first ?? .sha256WithRSAEncryption
    }

    /// Returns the algorithm of the first scheme that the key supports, or else its default.
    func signatureAlgorithm(preferring schemes: [SignatureScheme]) -> Certificate.SignatureAlgorithm {
        let possible = schemes.filter(key.signatureSchemes.contains).lazy
            .compactMap { wanted in Self.schemes.first { $0.scheme == wanted }?.algorithm }
        return possible.first ?? defaultSignatureAlgorithm
    }

    func signSynchronously(
        bytes: some DataProtocol, signatureAlgorithm: Certificate.SignatureAlgorithm
    ) throws -> Certificate.Signature {
        throw ProviderError(
            .operationNotAllowed,
            "Signing with this key may block; use the asynchronous function of swift-certificates."
        )
    }

    func signAsynchronously(
        bytes: some DataProtocol & Sendable, signatureAlgorithm: Certificate.SignatureAlgorithm
    ) async throws -> Certificate.Signature {
        guard let scheme = Self.schemes.first(where: { $0.algorithm == signatureAlgorithm })?.scheme,
            key.signatureSchemes.contains(scheme)
        else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The \(key.publicKey.displayName) key cannot sign with \(signatureAlgorithm); it supports "
                    + "\(key.signatureSchemes.map(\.description).joined(separator: ", ")).")
        }
        let signature = try await key.signature(for: Array(bytes), using: scheme)
        return try Certificate.Signature(
            signatureAlgorithm: signatureAlgorithm, signatureBytes: ASN1BitString(bytes: signature[...]))
    }

    /// Required by the protocol; not used, since the key is not exported.
    static let defaultPEMDiscriminator = "PRIVATE KEY"

    func serialize(into coder: inout DER.Serializer) throws {
        throw ProviderError(.operationNotAllowed, "The private key cannot be exported.")
    }
}

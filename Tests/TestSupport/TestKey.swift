public import CertificateProviding

/// A key that cannot be exported, and is another one but for what a test replaces.
public struct TestKey: IdentityKey {
    public typealias Signer =
        @Sendable (_ message: [UInt8], _ scheme: SignatureScheme) async throws(ProviderError) -> [UInt8]

    public let publicKey: PublicKeyInfo
    public let signatureSchemes: [SignatureScheme]
    public let location: KeyLocation
    public let uri: String?
    public let use: KeyUse
    public let signatureTimeout: Duration?
    public let exporter: (any KeyExporting)?
    public let decrypter: (any KeyDecrypting)?
    public let digestSigner: (any DigestSigning)?
    public let attester: (any KeyAttesting)?
    public let hostKey: KeyReference?
    private let key: any IdentityKey
    private let signer: Signer?

    /// - Parameter signer: `nil` to sign with the other key.
    public init(
        _ key: any IdentityKey, publicKey: PublicKeyInfo? = nil, signatureSchemes: [SignatureScheme]? = nil,
        location: KeyLocation = .token, uri: String? = nil, use: KeyUse? = nil, timeout: Duration? = nil,
        exporter: (any KeyExporting)? = nil, decrypter: (any KeyDecrypting)? = nil,
        digestSigner: (any DigestSigning)? = nil, attester: (any KeyAttesting)? = nil,
        hostKey: KeyReference? = nil, signer: Signer? = nil
    ) {
        self.publicKey = publicKey ?? key.publicKey
        self.signatureSchemes = signatureSchemes ?? key.signatureSchemes
        (self.location, self.uri, signatureTimeout) = (location, uri, timeout)
        (self.exporter, self.decrypter, self.digestSigner) = (exporter, decrypter, digestSigner)
        (self.attester, self.hostKey) = (attester, hostKey)
        self.use =
            use
            ?? KeyUse(signatureSchemes: self.signatureSchemes, decryptionSchemes: decrypter?.decryptionSchemes ?? [])
        (self.key, self.signer) = (key, signer)
    }

    public func signature(
        for message: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] {
        guard let signer else { return try await key.signature(for: message, using: scheme) }
        return try await signer(message, scheme)
    }
}

extension Identity {
    /// The same certificates with another key.
    public func with(_ key: any IdentityKey) throws -> Identity {
        try Identity(certificateChain: certificateChain, key: key, provenance: provenance)
    }
}

extension IdentityKey {
    /// Signs with the first scheme, or with another one, and says whether it was with this key.
    public func signsValidly(_ scheme: SignatureScheme? = nil) async throws -> Bool {
        guard let scheme = scheme ?? signatureSchemes.first else { return false }
        let message = Array("message".utf8)
        let signature = try await signature(for: message, using: scheme)
        return publicKey.isValidSignature(signature, for: message, using: scheme)
    }
}

import CertificateProviding

/// A private key that signs inside its token and never leaves it.
struct TokenKey: IdentityKey, CallbackSigning {
    var callbackSigner: (any CallbackSigning)? { self }
    var decrypter: (any KeyDecrypting)? { decryptionSchemes.isEmpty ? nil : self }
    var digestSigner: (any DigestSigning)? { digestSchemes.isEmpty ? nil : self }

    let publicKey: PublicKeyInfo
    let uri: String?
    /// The mechanisms of the token for the key, by scheme; more than one for some.
    let mechanisms: [SigningMechanism]
    /// The `CKA_ID` that the key shares with its certificate.
    let id: [UInt8]
    let token: Token
    /// Looked at where the key was made or looked for by itself.
    var decryptionSchemes: [DecryptionScheme] = []
    /// The label of the key, if it was made here or looked for by itself.
    var label: String?

    var location: KeyLocation { .token }
    var signatureTimeout: Duration? { token.calls.timeout }
    var signatureSchemes: [SignatureScheme] { Self.schemes(of: mechanisms) }

    private static func schemes(of mechanisms: [SigningMechanism]) -> [SignatureScheme] {
        var seen = Set<SignatureScheme>()
        return mechanisms.map(\.scheme).filter { seen.insert($0).inserted }
    }

    /// The token works for at most the provider's `timeout`.
    func sign(
        _ message: [UInt8], using scheme: SignatureScheme,
        completion: @escaping @Sendable (Result<[UInt8], ProviderError>) -> Void
    ) {
        let mechanisms = mechanisms.filter { $0.scheme == scheme }
        guard !mechanisms.isEmpty else {
            return completion(
                .failure(
                    ProviderError(
                        .unsupportedAlgorithm,
                        "The token '\(token.displayName)' cannot sign with \(scheme); this key supports "
                            + "\(signatureSchemes.map(\.description).joined(separator: ", ")).")))
        }
        token.calls.start(
            "signing",
            { () throws(ProviderError) in try token.sign(message, with: self, by: mechanisms) }
        ) { completion($0.mapError { $0.attributed(to: PKCS11TokenProvider.id) }) }
    }
}

extension TokenKey: DigestSigning {
    var digestSchemes: [SignatureScheme] { Self.schemes(of: mechanisms.filter(\.takesDigest)) }

    /// The token works for at most the provider's `timeout`.
    func signature(
        forDigest digest: [UInt8], using scheme: SignatureScheme
    ) async throws(ProviderError) -> [UInt8] {
        try requireDigest(digest, for: scheme)
        let mechanisms = mechanisms.filter { $0.scheme == scheme && $0.takesDigest }
        do throws(ProviderError) {
            return try await token.calls.run("signing") { () throws(ProviderError) in
                try token.sign(digest: digest, with: self, by: mechanisms)
            }
        } catch { throw error.attributed(to: PKCS11TokenProvider.id) }
    }
}

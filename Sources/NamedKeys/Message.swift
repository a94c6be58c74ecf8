import CertificateProviding
import Crypto
import OpenSSLSupport
import Signing

/// Content for a pair to sign, read once.
struct Message {
    let pair: NamedKey
    let scheme: SignatureScheme
    /// The number of bytes.
    let count: Int
    /// The SHA-256, where the pair asks a person.
    let shownDigest: [UInt8]
    /// `nil` for Ed25519.
    private let digest: [UInt8]?
    /// All of it; `nil` for more than a key takes as a whole.
    private let whole: [UInt8]?

    /// Blocks while the content is read.
    ///
    /// - Throws: Errors of the content; `unsupportedAlgorithm` for more than Ed25519 takes.
    init(
        _ content: SigningContent, for pair: NamedKey, _ scheme: SignatureScheme
    ) throws(CertificateProviderError) {
        (self.pair, self.scheme) = (pair, scheme)
        var (size, kept, shown) = (0, [UInt8]?.some([]), SHA256())
        // Which of both a key takes is known only after its login, and a pipe is not read twice.
        func take(_ piece: UnsafeRawBufferPointer) {
            size += piece.count
            if pair.isConfirmed { shown.update(bufferPointer: piece) }
            if let count = kept?.count, count <= SigningContent.maximumInMemory - piece.count {
                kept?.append(contentsOf: piece)
            } else {
                kept = nil
            }
        }
        if let algorithm = scheme.digestAlgorithm {
            digest = try content.digest(by: algorithm) { piece throws(CertificateProviderError) in take(piece) }
        } else {
            digest = nil
            try content.read { piece throws(CertificateProviderError) in
                take(piece)
                // There is no use in reading on.
                if kept == nil { throw Self.tooLarge(pair) }
            }
        }
        (count, whole) = (size, kept)
        shownDigest = pair.isConfirmed ? Array(shown.finalize()) : []
    }

    /// Lets the private key sign, and verifies the signature.
    func signature(by key: any IdentityKey) async throws(CertificateProviderError) -> [UInt8] {
        guard key.signatureSchemes.contains(scheme) else {
            let others = key.signatureSchemes.map(\.description).joined(separator: ", ")
            throw CertificateProviderError(
                .unsupportedAlgorithm,
                "The private key of '\(pair.name.shown)' does not sign with \(scheme); its key store can do: \(others)."
            )
        }
        let signature: [UInt8]
        let isValid: Bool
        if let digest, let signer = key.digestSigner, signer.digestSchemes.contains(scheme) {
            signature = try await signer.signature(forDigest: digest, using: scheme)
            isValid = OpenSSLLibrary().isValidSignature(signature, ofDigest: digest, by: pair.publicKey, using: scheme)
        } else {
            guard let whole else { throw Self.tooLarge(pair) }
            signature = try await key.signature(for: whole, using: scheme)
            isValid = pair.publicKey.isValidSignature(signature, for: whole, using: scheme)
        }
        guard isValid else {
            throw CertificateProviderError(
                .keyMismatch,
                "The signature that the private key of '\(pair.name.shown)' has made does not verify with the public key, and is "
                    + "dropped; check the key store (\(DisplayText.visible(pair.uri))).")
        }
        return signature
    }

    private static func tooLarge(_ pair: NamedKey) -> CertificateProviderError {
        CertificateProviderError(
            .unsupportedAlgorithm,
            "The content has more than \(SigningContent.maximumInMemory >> 20) MiB, and the key pair '\(pair.name.shown)' "
                + "(\(pair.publicKey.displayName)) signs no digest; use an EC or RSA key in a key store that does.")
    }
}

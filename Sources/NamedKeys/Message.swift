import CertificateProviding
import Crypto
import OpenSSLSupport
import Signing

/// Content for a private key to sign, read once: as a digest if the key signs such, else as a whole.
struct Message {
    private enum Form {
        case digest([UInt8], any DigestSigning)
        case whole([UInt8])
    }

    private let pair: NamedKey
    private let scheme: SignatureScheme
    private let key: any IdentityKey
    private let form: Form
    /// The number of bytes.
    let count: Int
    /// The SHA-256, where the pair asks a person.
    let shownDigest: [UInt8]

    /// Blocks while the content is read.
    ///
    /// - Throws: `unsupportedAlgorithm` for a scheme that the key does not have, and for more content than it takes as a whole; errors
    ///   of the content.
    init(
        _ content: SigningContent, for pair: NamedKey, _ key: any IdentityKey, _ scheme: SignatureScheme
    ) throws(ProviderError) {
        (self.pair, self.key, self.scheme) = (pair, key, scheme)
        guard key.signatureSchemes.contains(scheme) else {
            let others = key.signatureSchemes.map(\.description).joined(separator: ", ")
            throw ProviderError(
                .unsupportedAlgorithm,
                "The private key of '\(pair.name.shown)' does not sign with \(scheme); its key store can do: \(others)."
            )
        }
        var (size, shown) = (0, SHA256())
        if let algorithm = scheme.digestAlgorithm, let signer = key.digestSigner,
            signer.digestSchemes.contains(scheme)
        {
            let digest = try content.digest(by: algorithm) { piece throws(ProviderError) in
                size += piece.count
                if pair.isConfirmed { shown.update(bufferPointer: piece) }
            }
            form = .digest(digest, signer)
        } else {
            let bytes = try content.bytes()
            size = bytes.count
            if pair.isConfirmed { shown.update(data: bytes) }
            form = .whole(bytes)
        }
        count = size
        shownDigest = pair.isConfirmed ? Array(shown.finalize()) : []
    }

    /// Lets the private key sign, and verifies the signature.
    func signature() async throws(ProviderError) -> [UInt8] {
        let signature: [UInt8]
        let isValid: Bool
        switch form {
        case .digest(let digest, let signer):
            signature = try await signer.signature(forDigest: digest, using: scheme)
            isValid = OpenSSLLibrary().isValidSignature(signature, ofDigest: digest, by: pair.publicKey, using: scheme)
        case .whole(let bytes):
            signature = try await key.signature(for: bytes, using: scheme)
            isValid = pair.publicKey.isValidSignature(signature, for: bytes, using: scheme)
        }
        if isValid { return signature }
        throw ProviderError(
            .keyMismatch,
            "The signature that the private key of '\(pair.name.shown)' has made does not verify with the public key, and is "
                + "dropped; check the key store (\(DisplayText.visible(pair.uri))).")
    }
}

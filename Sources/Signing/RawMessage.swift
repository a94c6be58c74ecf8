package import CertificateProviding
import Crypto
import OpenSSLSupport

/// Content for a private key to sign as it is, read once: as a digest if the key signs such, else as a whole.
package struct RawMessage: Sendable {
    private enum Form {
        case digest([UInt8], any DigestSigning)
        case whole([UInt8])
    }
    private let key: any IdentityKey
    private let scheme: SignatureScheme
    private let form: Form
    /// The number of bytes.
    package let count: Int
    /// The SHA-256 of the content, if it was asked for.
    package let sha256: [UInt8]?

    /// Blocks while the content is read.
    ///
    /// - Parameter isHashed: Whether ``sha256`` is needed.
    /// - Throws: `storeReadFailed`, and `unsupportedAlgorithm` for more content than the key takes as a whole.
    package init(
        _ content: SigningContent, for key: any IdentityKey, _ scheme: SignatureScheme, isHashed: Bool = false
    ) throws(ProviderError) {
        (self.key, self.scheme) = (key, scheme)
        var (size, hash) = (0, SHA256())
        if let algorithm = scheme.digestAlgorithm, let signer = key.digestSigner,
            signer.digestSchemes.contains(scheme)
        {
            let digest = try content.digest(by: algorithm) { piece throws(ProviderError) in
                size += piece.count
                if isHashed { hash.update(bufferPointer: piece) }
            }
            form = .digest(digest, signer)
        } else {
            let bytes = try content.bytes()
            size = bytes.count
            if isHashed { hash.update(data: bytes) }
            form = .whole(bytes)
        }
        (count, sha256) = (size, isHashed ? Array(hash.finalize()) : nil)
    }

    /// Lets the key sign, once.
    ///
    /// - Returns: DER for ECDSA, the raw octets otherwise; `nil` if the signature does not verify with `publicKey`.
    /// - Throws: Errors of the key.
    package func signature(verifiedBy publicKey: PublicKeyInfo) async throws(ProviderError) -> [UInt8]? {
        switch form {
        case .digest(let digest, let signer):
            let signature = try await signer.signature(forDigest: digest, using: scheme)
            return OpenSSLLibrary().isValidSignature(signature, ofDigest: digest, by: publicKey, using: scheme)
                ? signature : nil
        case .whole(let bytes):
            let signature = try await key.signature(for: bytes, using: scheme)
            return publicKey.isValidSignature(signature, for: bytes, using: scheme) ? signature : nil
        }
    }
}

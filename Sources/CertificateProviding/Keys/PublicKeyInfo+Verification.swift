import Crypto
import CryptoExtras
import SwiftASN1

extension PublicKeyInfo {
    /// Whether `signature` is a valid signature of `message` by this key with `scheme`. False also for a scheme that
    /// does not fit the key, and for a key that swift-crypto does not support.
    public func isValidSignature(_ signature: [UInt8], for message: [UInt8], using scheme: SignatureScheme) -> Bool {
        do {
            switch scheme {
            case .ecdsaP256SHA256 where curve == "P-256":
                let key = try P256.Signing.PublicKey(x963Representation: keyBits)
                return key.isValidSignature(try .init(derRepresentation: signature), for: message)
            case .ecdsaP384SHA384 where curve == "P-384":
                let key = try P384.Signing.PublicKey(x963Representation: keyBits)
                return key.isValidSignature(try .init(derRepresentation: signature), for: message)
            case .ecdsaP521SHA512 where curve == "P-521":
                let key = try P521.Signing.PublicKey(x963Representation: keyBits)
                return key.isValidSignature(try .init(derRepresentation: signature), for: message)
            case .ed25519:
                guard algorithm == .ed25519 else { return false }
                return try Curve25519.Signing.PublicKey(rawRepresentation: keyBits)
                    .isValidSignature(signature, for: message)
            default:
                guard algorithm == .rsa, let padding = Self.rsaPadding(of: scheme),
                    let digest = scheme.digestAlgorithm
                else { return false }
                let key = try _RSA.Signing.PublicKey(unsafeDERRepresentation: keyBits)
                let rsaSignature = _RSA.Signing.RSASignature(rawRepresentation: signature)
                switch digest.function {
                case .sha256:
                    return key.isValidSignature(rsaSignature, for: SHA256.hash(data: message), padding: padding)
                case .sha384:
                    return key.isValidSignature(rsaSignature, for: SHA384.hash(data: message), padding: padding)
                case .sha512:
                    return key.isValidSignature(rsaSignature, for: SHA512.hash(data: message), padding: padding)
                }
            }
        } catch {
            return false
        }
    }

    /// Returns the padding of an RSA scheme; `nil` for any other scheme.
    static func rsaPadding(of scheme: SignatureScheme) -> _RSA.Signing.Padding? {
        switch scheme {
        case .rsaPKCS1SHA256, .rsaPKCS1SHA384, .rsaPKCS1SHA512: .insecurePKCS1v1_5
        case .rsaPSSRSAESHA256, .rsaPSSRSAESHA384, .rsaPSSRSAESHA512, .rsaPSSPSSSHA256, .rsaPSSPSSSHA384,
            .rsaPSSPSSSHA512:
            .PSS
        default: nil
        }
    }
}

extension Identity {
    /// Returns a random message to sign, for a proof of possession. Its prefix keeps it from being mistaken for a message that
    /// means something.
    package static func possessionProbe() -> [UInt8] {
        var generator = SystemRandomNumberGenerator()
        let nonce = (0..<32).map { _ in UInt8.random(in: .min ... .max, using: &generator) }
        return Array("certprov proof of possession\0".utf8) + nonce
    }

    /// Checks that the private key works and matches the leaf: signs a random message and verifies the signature. A new
    /// identity must pass before it replaces a working one.
    ///
    /// - Parameter scheme: The scheme to sign with, ideally the one that will be used; `nil` for the key's first
    ///   scheme.
    /// - Throws: An error of the key, or `keyMismatch` if the signature does not verify.
    public func verifyPossession(
        using scheme: SignatureScheme? = nil
    ) async throws(ProviderError) {
        guard let scheme = scheme ?? key.signatureSchemes.first else {
            throw ProviderError(
                .unsupportedAlgorithm, "The key of '\(certificate.subject)' supports no signature scheme.",
                provider: provenance.provider)
        }
        let probe = Self.possessionProbe()
        let signature = try await key.signature(for: probe, using: scheme)
        guard certificate.publicKey.isValidSignature(signature, for: probe, using: scheme) else {
            throw ProviderError(
                .keyMismatch,
                """
                A test signature does not verify with the certificate '\(certificate.subject)': it is for another key. \
                Obtain the identity again.
                """,
                provider: provenance.provider)
        }
    }
}

internal import COpenSSL
package import CertificateProviding

extension OpenSSLLibrary {
    /// Whether `signature` is a valid signature by `key`, of the message that `digest` was made of. An RSA key that is restricted to
    /// some parameters of RSASSA-PSS accepts no others (RFC 4055, section 3.3).
    ///
    /// - Parameters:
    ///   - digest: By the scheme's digest algorithm. False for Ed25519, which has none.
    package func isValidSignature(
        _ signature: [UInt8], ofDigest digest: [UInt8], by key: PublicKeyInfo, using scheme: SignatureScheme
    ) -> Bool {
        guard scheme.digestAlgorithm?.size == digest.count else { return false }
        return verifying(by: key, using: scheme) {
            EVP_PKEY_verify($0, signature, signature.count, digest, digest.count) == 1
        }
    }

    /// Whether `key` verifies signatures by `scheme`. An RSA key may be restricted to one digest of RSASSA-PSS. False for Ed25519.
    package func permits(_ scheme: SignatureScheme, for key: PublicKeyInfo) -> Bool {
        verifying(by: key, using: scheme) { _ in true }
    }

    private func verifying(
        by key: PublicKeyInfo, using scheme: SignatureScheme, _ verify: (OpaquePointer) -> Bool
    ) -> Bool {
        guard let algorithm = scheme.digestAlgorithm else { return false }
        OpenSSLError.clear()
        defer { OpenSSLError.clear() }
        let der = key.derRepresentation
        let handle = der.withUnsafeBufferPointer { bytes in
            var position = bytes.baseAddress
            return d2i_PUBKEY_ex(nil, &position, bytes.count, context, nil)
        }
        guard let handle else { return false }
        defer { EVP_PKEY_free(handle) }
        guard let check = EVP_PKEY_CTX_new_from_pkey(context, handle, nil) else { return false }
        defer { EVP_PKEY_CTX_free(check) }
        return EVP_PKEY_verify_init(check) == 1 && Self.set(scheme, algorithm, of: key, in: check) && verify(check)
    }

    private static func set(
        _ scheme: SignatureScheme, _ algorithm: DigestAlgorithm, of key: PublicKeyInfo, in check: OpaquePointer
    ) -> Bool {
        let digest =
            switch algorithm {
            case .sha256: EVP_sha256()
            case .sha384: EVP_sha384()
            default: EVP_sha512()
            }
        guard EVP_PKEY_CTX_set_signature_md(check, digest) == 1 else { return false }
        switch scheme {
        case .ecdsaP256SHA256, .ecdsaP384SHA384, .ecdsaP521SHA512: return key.algorithm == .ec
        case .rsaPKCS1SHA256, .rsaPKCS1SHA384, .rsaPKCS1SHA512:
            return key.algorithm == .rsa && EVP_PKEY_CTX_set_rsa_padding(check, RSA_PKCS1_PADDING) == 1
        default:
            return key.algorithm == .rsa && EVP_PKEY_CTX_set_rsa_padding(check, RSA_PKCS1_PSS_PADDING) == 1
                && EVP_PKEY_CTX_set_rsa_pss_saltlen(check, RSA_PSS_SALTLEN_DIGEST) == 1
        }
    }
}

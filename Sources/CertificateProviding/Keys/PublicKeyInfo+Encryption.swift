import CryptoExtras

extension PublicKeyInfo {
    /// Encrypts for the private key (RFC 8017, sections 7.1.1 and 7.2.1). Does not block.
    ///
    /// Use a scheme that the key offers (``KeyDecrypting/decryptionSchemes``): no other one can be decrypted.
    ///
    /// - Parameter plaintext: At most as long as the modulus in bytes, less 66 for `RSA-OAEP-256`, 42 for `RSA-OAEP` and
    ///   11 for `RSA1_5`.
    /// - Returns: The ciphertext, as long as the modulus.
    /// - Throws: `unsupportedAlgorithm` for a key that is not RSA, is restricted to RSASSA-PSS or has an unusual size, and
    ///   for an unknown scheme; `operationNotAllowed` for a longer plaintext.
    public func encrypt(
        _ plaintext: SecretBytes, using scheme: DecryptionScheme
    ) throws(ProviderError) -> [UInt8] {
        guard algorithm == .rsa, !isRestrictedToPSS, let padding = Self.padding(of: scheme),
            let key = try? _RSA.Encryption.PublicKey(unsafeDERRepresentation: keyBits)
        else {
            throw ProviderError(
                .unsupportedAlgorithm,
                """
                Data cannot be encrypted for a key of type \(displayName) with \(scheme.rawValue.withVisibleControls); \
                use an RSA key of at least 2048 bits, and RSA-OAEP-256 or RSA-OAEP.
                """)
        }
        let maximum = key.maximumEncryptSize(with: padding)
        guard plaintext.count <= maximum else {
            throw ProviderError(
                .operationNotAllowed,
                """
                \(plaintext.count) bytes are too long for \(scheme) with a key of type \(displayName), which takes \
                \(maximum); encrypt a symmetric key, and the data with that.
                """)
        }
        do {
            return try plaintext.withUnsafeBytes { Array(try key.encrypt($0, padding: padding)) }
        } catch {
            throw ProviderError(.internal, "Encrypting with \(scheme) failed.", underlying: error)
        }
    }

    /// Returns the padding of a scheme; `nil` for an unknown one.
    static func padding(of scheme: DecryptionScheme) -> _RSA.Encryption.Padding? {
        switch scheme {
        case .rsaOAEPSHA256: .PKCS1_OAEP_SHA256
        case .rsaOAEPSHA1: .PKCS1_OAEP
        case .rsaPKCS1: ._WEAK_AND_INSECURE_PKCS_V1_5
        default: nil
        }
    }
}

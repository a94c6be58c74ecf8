internal import COpenSSL
package import CertificateProviding

/// Conversions of private keys to PKCS#8.
extension OpenSSLLibrary {
    /// Re-encodes a PKCS#8 key in its usual form, for readers that are stricter than OpenSSL.
    package func normalizedPKCS8(_ key: SecretBytes) throws(OpenSSLError) -> SecretBytes {
        let handle = try PrivateKeyHandle(pkcs8: key, in: self)
        // It would go with its last use, which is to give its pointer away.
        return try withExtendedLifetime(handle) { () throws(OpenSSLError) in try Self.pkcs8(of: handle.pointer) }
    }

    /// Reads the first private key of a PEM text (RFC 7468): PKCS#8, or the older forms of RSA and EC keys.
    ///
    /// - Returns: PKCS#8.
    /// - Throws: Also if the key is encrypted: OpenSSL does not prompt for a password.
    package func pkcs8(pem: SecretBytes) throws(OpenSSLError) -> SecretBytes {
        OpenSSLError.clear()
        let key = pem.withUnsafeBytes { text -> OpaquePointer? in
            // Reads where the text is, of which there is no copy then.
            guard let bio = BIO_new_mem_buf(text.baseAddress, Int32(clamping: text.count)) else { return nil }
            defer { BIO_free(bio) }
            // Without one of ours, OpenSSL would ask at the terminal.
            return PEM_read_bio_PrivateKey_ex(bio, nil, { _, _, _, _ in -1 }, nil, context, nil)
        }
        guard let key else { throw OpenSSLError("PEM_read_bio_PrivateKey_ex") }
        defer { EVP_PKEY_free(key) }
        return try Self.pkcs8(of: key)
    }

    private static func pkcs8(of key: OpaquePointer) throws(OpenSSLError) -> SecretBytes {
        guard let info = EVP_PKEY2PKCS8(key) else { throw OpenSSLError("EVP_PKEY2PKCS8") }
        defer { PKCS8_PRIV_KEY_INFO_free(info) }
        var output: UnsafeMutablePointer<UInt8>?
        let count = i2d_PKCS8_PRIV_KEY_INFO(info, &output)
        guard count > 0 else { throw OpenSSLError("i2d_PKCS8_PRIV_KEY_INFO") }
        defer { CRYPTO_clear_free(output, Int(count), #fileID, #line) }
        return SecretBytes(copying: UnsafeBufferPointer(start: output, count: Int(count)))
    }
}

internal import COpenSSL
package import CertificateProviding

/// A PKCS#12 password (RFC 7292, appendix B.1).
///
/// Absent and empty are two different passwords: the absent one has zero bytes, the empty one is a BMPString of only a
/// terminator.
package enum PKCS12Password: Sendable {
    /// No password.
    case absent
    /// UTF-8. OpenSSL converts it to a BMPString if the algorithm requires one.
    case utf8(SecretBytes)

    /// Passes the bytes to `body` in OpenSSL's form: a null pointer is the absent password.
    func withUnsafeBytes<T>(_ body: (UnsafePointer<CChar>?, Int32) -> T) -> T {
        switch self {
        case .absent:
            body(nil, 0)
        case .utf8(let secret):
            secret.withUnsafeBytes { bytes in
                // A SecretBytes has an address even when it is empty.
                body(bytes.baseAddress?.assumingMemoryBound(to: CChar.self), Int32(clamping: bytes.count))
            }
        }
    }
}

extension OpenSSLLibrary {
    /// Decrypts `ciphertext` with PBES1, PBES2 (RFC 8018) or a PKCS#12 PBE (RFC 7292, appendix C).
    ///
    /// Blocks while the key is derived.
    ///
    /// - Parameter algorithm: The `AlgorithmIdentifier`, DER. The caller must have bounded its iterations.
    package func decrypt(
        _ ciphertext: [UInt8], algorithm: [UInt8], password: PKCS12Password
    ) throws(OpenSSLError) -> SecretBytes {
        OpenSSLError.clear()
        let identifier = algorithm.withUnsafeBufferPointer { der in
            var position = der.baseAddress
            return d2i_X509_ALGOR(nil, &position, der.count)
        }
        guard let identifier else { throw OpenSSLError("d2i_X509_ALGOR") }
        defer { X509_ALGOR_free(identifier) }

        var output: UnsafeMutablePointer<UInt8>?
        var count: Int32 = 0
        _ = try attempt("PKCS12_pbe_crypt_ex") {
            password.withUnsafeBytes { password, length in
                ciphertext.withUnsafeBufferPointer { bytes in
                    PKCS12_pbe_crypt_ex(
                        identifier, password, length, bytes.baseAddress, Int32(clamping: bytes.count), &output, &count,
                        0, context, nil)
                }
            }
        }
        defer { CRYPTO_clear_free(output, Int(count), #fileID, #line) }
        return SecretBytes(copying: UnsafeBufferPointer(start: output, count: Int(count)))
    }

    /// Derives the key of a PKCS#12 MAC (RFC 7292, appendix B.2, ID 3). Blocks while the key is derived.
    package func pkcs12MACKey(
        password: PKCS12Password, salt: [UInt8], iterations: Int, digest: String
    ) throws(OpenSSLError) -> SecretBytes {
        let digest = try fetchDigest(digest)
        defer { EVP_MD_free(digest) }
        let size = Int(EVP_MD_get_size(digest))
        return try SecretBytes(count: size) { buffer throws(OpenSSLError) in
            OpenSSLError.clear()
            var salt = salt
            let result = password.withUnsafeBytes { password, length in
                PKCS12_key_gen_utf8_ex(
                    password, length, &salt, Int32(clamping: salt.count), 3, Int32(clamping: iterations),
                    Int32(clamping: size), buffer.bindMemory(to: UInt8.self).baseAddress, digest, context, nil)
            }
            guard result == 1 else { throw OpenSSLError("PKCS12_key_gen_utf8_ex") }
        }
    }

    /// Derives a key with PBKDF2 (RFC 8018, section 5.2) and HMAC over `digest`. Treats the absent password as empty.
    /// Blocks while the key is derived.
    package func pbkdf2(
        password: PKCS12Password, salt: [UInt8], iterations: Int, keySize: Int, digest: String
    ) throws(OpenSSLError) -> SecretBytes {
        let digest = try fetchDigest(digest)
        defer { EVP_MD_free(digest) }
        return try SecretBytes(count: keySize) { buffer throws(OpenSSLError) in
            OpenSSLError.clear()
            let result = password.withUnsafeBytes { password, length in
                PKCS5_PBKDF2_HMAC(
                    password, length, salt, Int32(clamping: salt.count), Int32(clamping: iterations), digest,
                    Int32(clamping: keySize), buffer.bindMemory(to: UInt8.self).baseAddress)
            }
            guard result == 1 else { throw OpenSSLError("PKCS5_PBKDF2_HMAC") }
        }
    }

    /// Derives a key with scrypt (RFC 7914, section 6). Blocks while the key is derived, and uses 128 · `cost` · `blockSize` bytes.
    ///
    /// - Parameters:
    ///   - password: Treats the absent password as empty.
    ///   - cost: N, a power of two that is greater than one.
    ///   - blockSize: r.
    ///   - parallelism: p.
    package func scrypt(
        password: PKCS12Password, salt: [UInt8], cost: Int, blockSize: Int, parallelism: Int, keySize: Int
    ) throws(OpenSSLError) -> SecretBytes {
        try SecretBytes(count: keySize) { buffer throws(OpenSSLError) in
            OpenSSLError.clear()
            // OpenSSL counts the table of N blocks, and the p blocks that it works on.
            let memory = 128 * blockSize * (cost + parallelism + 2)
            let result = password.withUnsafeBytes { password, length in
                EVP_PBE_scrypt_ex(
                    password, Int(length), salt, salt.count, UInt64(clamping: cost), UInt64(clamping: blockSize),
                    UInt64(clamping: parallelism), UInt64(clamping: memory),
                    buffer.bindMemory(to: UInt8.self).baseAddress, keySize, context, nil)
            }
            guard result == 1 else { throw OpenSSLError("EVP_PBE_scrypt_ex") }
        }
    }

    /// Returns the HMAC (RFC 2104) of `message` over `digest`.
    package func hmac(_ message: [UInt8], key: SecretBytes, digest: String) throws(OpenSSLError) -> [UInt8] {
        OpenSSLError.clear()
        var output = [UInt8](repeating: 0, count: Int(EVP_MAX_MD_SIZE))
        var count = 0
        let result = key.withUnsafeBytes { key in
            message.withUnsafeBufferPointer { message in
                EVP_Q_mac(
                    context, "HMAC", nil, digest, nil, key.baseAddress, key.count, message.baseAddress, message.count,
                    &output, output.count, &count)
            }
        }
        guard result != nil else { throw OpenSSLError("EVP_Q_mac") }
        return Array(output[0..<count])
    }

    private func fetchDigest(_ name: String) throws(OpenSSLError) -> OpaquePointer {
        try attempt("EVP_MD_fetch(\(name))") { EVP_MD_fetch(context, name, nil) }
    }
}

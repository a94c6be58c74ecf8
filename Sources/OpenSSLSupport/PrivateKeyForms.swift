internal import COpenSSL
package import CertificateProviding
import SwiftASN1

/// Conversions of private keys to PKCS#8.
extension OpenSSLLibrary {
    /// Re-encodes a PKCS#8 key in its usual form, for readers that are stricter than OpenSSL.
    package func normalizedPKCS8(_ key: SecretBytes) throws(OpenSSLError) -> SecretBytes {
        let handle = try PrivateKeyHandle(pkcs8: key, in: self)
        // It would go with its last use, which is to give its pointer away.
        return try withExtendedLifetime(handle) { () throws(OpenSSLError) in try Self.pkcs8(of: handle.pointer) }
    }

    /// Reads a private key of PKCS#8 as swift-crypto does, or else re-encodes it first as OpenSSL, which is more lenient,
    /// reads it.
    ///
    /// - Throws: As ``/CertificateProviding/SoftwareKey/init(pkcs8:location:)``.
    package func softwareKey(_ pkcs8: SecretBytes) throws(ProviderError) -> SoftwareKey {
        do throws(ProviderError) { return try SoftwareKey(pkcs8: pkcs8, location: .file) } catch {
            guard error.code == .malformedData, let normalized = try? normalizedPKCS8(pkcs8) else { throw error }
            return try SoftwareKey(pkcs8: normalized, location: .file)
        }
    }

    /// Reads a private key of a PEM file, in any of its forms: PKCS#8, PKCS#1 or SEC1, each encrypted or not.
    ///
    /// Blocks while a key is derived from the password, for a bounded time.
    ///
    /// - Parameters:
    ///   - name: The name of the file, for errors.
    ///   - password: Must be given for a block that ``/CertificateProviding/PEMBlock/isEncrypted``.
    /// - Throws: `wrongPassword`, also for an encrypted key without a password; `malformedData`; `unsupportedAlgorithm`.
    package func privateKey(
        of block: PEMBlock, in name: String, password: SecretBytes?
    ) throws(ProviderError) -> SoftwareKey {
        guard let content = block.secret else { throw block.error(.malformedData, in: name, "is not a private key") }
        if block.isEncrypted, password == nil {
            throw block.error(.wrongPassword, in: name, "is encrypted, and no password is given")
        }
        let pkcs8: SecretBytes
        switch (block.label, password) {
        case ("PRIVATE KEY", _) where !block.hasEncryptedContent:
            pkcs8 = content
        case ("ENCRYPTED PRIVATE KEY", let password?) where !block.hasEncryptedContent:
            pkcs8 = try decrypted(content, block, name, password)
        case ("PRIVATE KEY", _), ("RSA PRIVATE KEY", _), ("EC PRIVATE KEY", _):
            pkcs8 = try olderForm(block, content, name, password)
        case ("TSS2 PRIVATE KEY", _):
            throw block.error(
                .unsupportedAlgorithm, in: name,
                "is a key that only its TPM can use. Name the file by a URI of the TPM's key store, tpm:\(name)")
        case ("OPENSSH PRIVATE KEY", _):
            throw block.error(
                .unsupportedAlgorithm, in: name,
                "is in OpenSSH's own form; convert it with: ssh-keygen -p -m PKCS8 -f FILE")
        default:
            throw block.error(
                .unsupportedAlgorithm, in: name,
                "is a kind of key that is not supported; use an RSA, EC or Ed25519 key")
        }
        do throws(ProviderError) { return try softwareKey(pkcs8) } catch {
            let reason = "cannot be used: \(error.message)"
            throw block.error(error.code, in: name, reason.hasSuffix(".") ? String(reason.dropLast()) : reason)
        }
    }

    /// Decrypts an `EncryptedPrivateKeyInfo` (RFC 5208, section 6).
    private func decrypted(
        _ content: SecretBytes, _ block: PEMBlock, _ name: String, _ password: SecretBytes
    ) throws(ProviderError) -> SecretBytes {
        // The ciphertext is not secret.
        let bytes = content.withUnsafeBytes { Array($0) }
        let algorithm: ASN1Node
        let ciphertext: [UInt8]
        do {
            (algorithm, ciphertext) = try BER.sequence(try BER.parse(bytes), identifier: .sequence) { nodes in
                let algorithm = try nodes.required("encryptionAlgorithm")
                return (algorithm, Array(try ASN1OctetString(berEncoded: &nodes).bytes))
            }
            var budget = DerivationBudget()
            try budget.spend(onDecryptingWith: algorithm)
        } catch let error as ProviderError {
            throw block.error(error.code, in: name, "is encrypted at too great a cost: \(error.message.dropLast())")
        } catch {
            throw block.error(.malformedData, in: name, "is damaged: it is not an encrypted PKCS#8 key; replace it")
        }
        let plain: SecretBytes
        do throws(OpenSSLError) {
            plain = try decrypt(
                ciphertext, algorithm: Array(algorithm.encodedBytes), password: .utf8(password))
        } catch {
            if error.isUnsupportedAlgorithm {
                let scheme =
                    (try? algorithm.algorithm()).map { OpenSSLLibrary.name(ofOID: "\($0)") } ?? "another scheme"
                throw block.error(
                    .unsupportedAlgorithm, in: name,
                    "is encrypted with \(scheme) in a form that is not supported; encrypt it again with: openssl pkcs8 -topk8 "
                        + "-v2 aes256")
            }
            throw Self.wrongPassword(block, name)
        }
        // The padding alone accepts one wrong key in 256.
        guard (try? normalizedPKCS8(plain)) != nil else { throw Self.wrongPassword(block, name) }
        return plain
    }

    private static func wrongPassword(_ block: PEMBlock, _ name: String) -> ProviderError {
        block.error(.wrongPassword, in: name, "cannot be decrypted: the password is wrong, or the block is damaged")
    }

    /// Reads the older forms of RSA and EC keys, which OpenSSL decrypts itself (RFC 1421).
    private func olderForm(
        _ block: PEMBlock, _ content: SecretBytes, _ name: String, _ password: SecretBytes?
    ) throws(ProviderError) -> SecretBytes {
        let text = block.text(content)
        do throws(OpenSSLError) {
            return try pkcs8(pem: text, password: password)
        } catch {
            if error.isUnsupportedAlgorithm, !(block.hasEncryptedContent && error.isOfDecoder) {
                throw block.error(
                    .unsupportedAlgorithm, in: name,
                    block.hasEncryptedContent
                        ? "is encrypted in a way that is not supported; decrypt it with: openssl pkey -provider legacy -provider "
                            + "default -in \(name)"
                        : "is of a kind that is not supported, or an EC key that does not name its curve; write the key again from "
                            + "its source, as PKCS#8")
            }
            if block.hasEncryptedContent { throw Self.wrongPassword(block, name) }
            // Without the underlying error, which might quote the key.
            throw block.error(.malformedData, in: name, "is a damaged private key; replace it")
        }
    }

    /// Reads the first private key of a PEM text (RFC 7468): PKCS#8, or the older forms of RSA and EC keys.
    ///
    /// - Returns: PKCS#8.
    private func pkcs8(pem: SecretBytes, password: SecretBytes?) throws(OpenSSLError) -> SecretBytes {
        try attempt("PEM_read_bio_PrivateKey_ex") { () -> Result<SecretBytes, OpenSSLError>? in
            let key = pem.withUnsafeBytes { text -> OpaquePointer? in
                // Reads where the text is, of which there is no copy then.
                guard let bio = BIO_new_mem_buf(text.baseAddress, Int32(clamping: text.count)) else { return nil }
                defer { BIO_free(bio) }
                return withUnsafePointer(to: password) { password in
                    // Without a callback of ours, OpenSSL would ask at the terminal.
                    PEM_read_bio_PrivateKey_ex(
                        bio, nil,
                        { buffer, size, _, context in
                            guard let buffer, let context,
                                let password = context.assumingMemoryBound(to: SecretBytes?.self).pointee
                            else { return -1 }
                            return password.withUnsafeBytes { bytes in
                                guard bytes.count <= size else { return -1 }
                                UnsafeMutableRawBufferPointer(start: buffer, count: Int(size)).copyMemory(from: bytes)
                                return Int32(bytes.count)
                            }
                        }, UnsafeMutableRawPointer(mutating: password), context, nil)
                }
            }
            guard let key else { return nil }
            defer { EVP_PKEY_free(key) }
            do throws(OpenSSLError) { return .success(try Self.pkcs8(of: key)) } catch { return .failure(error) }
        }.get()
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

extension PEMBlock {
    /// The block as OpenSSL writes it.
    fileprivate func text(_ content: SecretBytes) -> SecretBytes {
        let start = "-----BEGIN \(label)-----\n" + headers.map { $0 + "\n" }.joined() + (headers.isEmpty ? "" : "\n")
        let end = "-----END \(label)-----\n"
        // 48 bytes are a line of 64 digits.
        let digits = (content.count + 2) / 3 * 4
        let lines = (content.count + 47) / 48
        return SecretBytes(count: start.utf8.count + digits + lines + end.utf8.count) { buffer in
            var used = 0
            func put(_ bytes: some Sequence<UInt8>) {
                for byte in bytes where used < buffer.count {
                    buffer[used] = byte
                    used += 1
                }
            }
            put(start.utf8)
            content.withUnsafeBytes { bytes in
                let output = buffer.bindMemory(to: UInt8.self)
                let input = bytes.bindMemory(to: UInt8.self)
                for offset in stride(from: 0, to: bytes.count, by: 48) {
                    let count = min(48, bytes.count - offset)
                    // It writes a NUL after the digits, where the end of the line comes.
                    guard let to = output.baseAddress, let from = input.baseAddress else { return }
                    used += Int(EVP_EncodeBlock(to + used, from + offset, Int32(count)))
                    put([0x0a])
                }
            }
            put(end.utf8)
        }
    }
}

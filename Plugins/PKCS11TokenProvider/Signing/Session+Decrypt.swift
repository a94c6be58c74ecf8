import CP11Kit
import CertificateProviding

extension Session {
    /// Decrypts with a key of the token. Blocks.
    ///
    /// - Parameter authenticate: Called between `C_DecryptInit`, which refuses what the token does not support, and
    ///   `C_Decrypt`, where a key demands the PIN each time.
    func decrypt(
        _ ciphertext: [UInt8], with key: CK_OBJECT_HANDLE, by mechanism: DecryptionMechanism,
        authenticate: ((Session) throws(CryptokiError) -> Void)?
    ) throws(CryptokiError) -> SecretBytes {
        try call("C_DecryptInit") { functions in
            mechanism.withMechanism { functions.C_DecryptInit?(handle, $0, key) }
        }
        try authenticate?(self)
        var ciphertext = ciphertext
        let size = CK_ULONG(ciphertext.count)
        // The plaintext is shorter than the key.
        var count = size
        let whole = try SecretBytes(count: ciphertext.count) { buffer throws(CryptokiError) in
            let output = buffer.assumingMemoryBound(to: CK_BYTE.self).baseAddress
            do throws(CryptokiError) {
                try call("C_Decrypt") { $0.C_Decrypt?(handle, &ciphertext, size, output, &count) }
            } catch {
                if module.losesLoadedKeys { endDecryption() }
                throw error
            }
        }
        guard count <= size else { throw CryptokiError(function: "C_Decrypt", code: CKR_BUFFER_TOO_SMALL) }
        return whole.withUnsafeBytes { SecretBytes(copying: $0.prefix(Int(count))) }
    }

    /// Ends an operation that has failed, and should have ended with that: tpm2-pkcs11 (seen in 1.9.0) takes the key for
    /// in use otherwise, and destroys it no more.
    private func endDecryption() {
        var (rest, count) = ([CK_BYTE](repeating: 0, count: 1024), CK_ULONG(1024))
        try? call("C_DecryptFinal") { $0.C_DecryptFinal?(handle, &rest, &count) }
    }

    /// Returns whether a key decrypts a message that was encrypted with its public key. Blocks.
    func decryptsProbe(
        of publicKey: PublicKeyInfo, with key: CK_OBJECT_HANDLE, by mechanism: DecryptionMechanism,
        authenticate: ((Session) throws(CryptokiError) -> Void)?
    ) throws(CryptokiError) -> Bool {
        let probe = SecretBytes(copying: Token.probe().suffix(32))
        // swift-crypto supports no RSA keys of odd sizes.
        guard let ciphertext = try? publicKey.encrypt(probe, using: mechanism.scheme) else { return false }
        return try decrypt(ciphertext, with: key, by: mechanism, authenticate: authenticate) == probe
    }
}

extension CryptokiError {
    /// Whether the token says that the ciphertext is wrong.
    var isOfCiphertext: Bool {
        [CKR_ENCRYPTED_DATA_INVALID, CKR_ENCRYPTED_DATA_LEN_RANGE, CKR_DATA_INVALID, CKR_DATA_LEN_RANGE].contains(code)
            && function == "C_Decrypt"
    }

    /// Whether the token may mean the ciphertext, and says what it also says of other trouble: SoftHSM answers
    /// `CKR_GENERAL_ERROR`.
    var mayBeOfCiphertext: Bool {
        [CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_DEVICE_ERROR, CKR_ARGUMENTS_BAD].contains(code)
            && function == "C_Decrypt"
    }

    /// Whether a token says clearly that it does not support the parameters of a mechanism: SoftHSM answers
    /// `CKR_ARGUMENTS_BAD`.
    var isOfMechanismParameters: Bool {
        [CKR_MECHANISM_INVALID, CKR_MECHANISM_PARAM_INVALID, CKR_ARGUMENTS_BAD].contains(code)
    }
}

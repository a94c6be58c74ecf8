import CP11Kit
import CertificateProviding

extension TokenKey: KeyDecrypting {
    /// The token works for at most the provider's `timeout`.
    func decrypt(_ ciphertext: [UInt8]) async throws(CertificateProviderError) -> SecretBytes {
        return try await token.calls.run("decrypting") { () throws(CertificateProviderError) in
            try token.decrypt(ciphertext, with: self)
        }
    }
}

extension Token {
    fileprivate func decrypt(
        _ ciphertext: [UInt8], with key: TokenKey
    ) throws(CertificateProviderError) -> SecretBytes {
        let result = try withConnection(loggedIn: true) {
            connection throws(CryptokiError) -> Result<SecretBytes, CryptokiError>? in
            guard let known = try connection.key(for: key.publicKey, id: key.id) else { return nil }
            do throws(CryptokiError) {
                return .success(
                    try connection.sessions.withSession { session throws(CryptokiError) in
                        try session.decrypt(
                            ciphertext, with: known.found.handle,
                            authenticate: known.found.needsPINEachTime ? confirmation(on: connection) : nil)
                    })
            } catch {
                guard [CKR_ENCRYPTED_DATA_INVALID, CKR_ENCRYPTED_DATA_LEN_RANGE].contains(error.code) else {
                    throw error
                }
                return .failure(error)
            }
        }
        guard let result else { throw keys.noLongerThere() }
        do throws(CryptokiError) { return try result.get() } catch {
            throw CertificateProviderError(
                .malformedData,
                "The token '\(displayName)' cannot decrypt the data, which was not encrypted for this key.",
                underlying: error)
        }
    }
}

extension Session {
    /// Decrypts by RSAES-PKCS1-v1_5. Blocks.
    ///
    /// - Parameter authenticate: Called between `C_DecryptInit` and `C_Decrypt`, where a key demands the PIN each time.
    fileprivate func decrypt(
        _ ciphertext: [UInt8], with key: CK_OBJECT_HANDLE, authenticate: ((Session) throws(CryptokiError) -> Void)?
    ) throws(CryptokiError) -> SecretBytes {
        var mechanism = CK_MECHANISM(mechanism: CKM_RSA_PKCS, pParameter: nil, ulParameterLen: 0)
        try call("C_DecryptInit") { $0.C_DecryptInit?(handle, &mechanism, key) }
        try authenticate?(self)
        var ciphertext = ciphertext
        let size = CK_ULONG(ciphertext.count)
        // What was encrypted is shorter than the key is.
        var count = size
        let whole = try SecretBytes(count: ciphertext.count) { buffer throws(CryptokiError) in
            let output = buffer.assumingMemoryBound(to: CK_BYTE.self).baseAddress
            try call("C_Decrypt") { $0.C_Decrypt?(handle, &ciphertext, size, output, &count) }
        }
        guard count <= size else { throw CryptokiError(function: "C_Decrypt", code: CKR_BUFFER_TOO_SMALL) }
        return whole.withUnsafeBytes { SecretBytes(copying: $0.prefix(Int(count))) }
    }
}

import CP11Kit
import CertificateProviding
import FaultyModuleControl
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(20))) struct DecryptionTests {
    private let module: FaultyModule
    private let publicKey: PublicKeyInfo

    init() throws {
        module = try .withToken { $0.control.set_mechanisms(0, [CKM_RSA_PKCS, CKM_RSA_PKCS_OAEP], 2) }
        publicKey = try FaultyModule.rsaIdentity.get().key.publicKey
    }

    /// As after a restart.
    private func find(asksEachTime: Bool = false, adding: Bool = true) throws -> any IdentityKey {
        if adding { try module.addKey(of: FaultyModule.rsaIdentity.get(), to: 0, asksEachTime: asksEachTime) }
        return try #require(try module.provider(["uri": "pkcs11:token=alpha"]).storedKey(for: publicKey))
    }

    private func schemes(_ key: any IdentityKey) -> [DecryptionScheme] { key.decrypter?.decryptionSchemes ?? [] }

    @Test("A key offers the decryption schemes that its token can do")
    func whatWorksIsOffered() async throws {
        let key = try find()
        #expect(schemes(key) == DecryptionScheme.known)
        for scheme in schemes(key) {
            let ciphertext = try scheme.opensslEncrypt([1, 2, 3], for: publicKey)
            #expect(try await key.decrypter?.decrypt(ciphertext, using: scheme) == SecretBytes(copying: [1, 2, 3]))
        }
    }

    /// A module that takes another hash than requested loses the messages that are encrypted by that. It answers
    /// `CKR_GENERAL_ERROR`.
    @Test(arguments: [CKM_SHA_1, CKM_SHA256]) func aHashThatIsNotTakenIsNotOffered(hash: CK_MECHANISM_TYPE) throws {
        module.control.set_only_hash(0, hash)
        #expect(try schemes(find()) == [hash == CKM_SHA256 ? .rsaOAEPSHA256 : .rsaOAEPSHA1, .rsaPKCS1])
    }

    @Test(
        arguments: [
            ("C_DecryptInit", CKR_MECHANISM_PARAM_INVALID), ("C_DecryptInit", CKR_ARGUMENTS_BAD),
            ("C_DecryptInit", CKR_KEY_FUNCTION_NOT_PERMITTED), ("C_Decrypt", CKR_MECHANISM_PARAM_INVALID),
            ("C_Decrypt", CKR_ARGUMENTS_BAD),
        ])
    func aHashMayBeRefusedAnywhere(function: String, result: CK_RV) throws {
        module.fail(function, result)
        #expect(try schemes(find()) == [.rsaOAEPSHA1, .rsaPKCS1])
    }

    @Test func aTokenIsTriedOnce() throws {
        let provider = try module.provider(["uri": "pkcs11:token=alpha"])
        try module.addKey(of: FaultyModule.rsaIdentity.get(), to: 0)
        for _ in 0..<3 { _ = try provider.storedKey(for: publicKey) }
        #expect(module.calls("C_Decrypt") == 2)
    }

    @Test func troubleThatIsOverIsNoDamage() async throws {
        let key = try find()
        let ciphertext = try DecryptionScheme.rsaOAEPSHA256.opensslEncrypt([1, 2, 3], for: publicKey)
        for result in [CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_DEVICE_ERROR] {
            module.fail("C_Decrypt", result)
            let plaintext = try await key.decrypter?.decrypt(ciphertext, using: .rsaOAEPSHA256)
            #expect(plaintext == SecretBytes(copying: [1, 2, 3]))
        }
        module.fail("C_Decrypt", CKR_GENERAL_ERROR, times: 100)
        #expect(await code { _ = try await key.decrypter?.decrypt(ciphertext, using: .rsaOAEPSHA256) } == .unavailable)
    }

    @Test(arguments: DecryptionScheme.known) func aWrongCiphertextIsMalformed(scheme: DecryptionScheme) async throws {
        // OpenSSL makes random bytes of it otherwise.
        let damaged = [UInt8](repeating: 0xff, count: 256)
        for asksEachTime in [false, true] {
            module.control.clear(0)
            let key = try find(asksEachTime: asksEachTime)
            #expect(await code { _ = try await key.decrypter?.decrypt(damaged, using: scheme) } == .malformedData)
            let before = module.calls("C_Decrypt")
            #expect(await code { _ = try await key.decrypter?.decrypt([1], using: scheme) } == .malformedData)
            #expect(module.calls("C_Decrypt") == before)
        }
    }

    /// A refusal comes before the PIN is sent.
    @Test func aHashThatIsRefusedCostsNoPIN() async throws {
        try module.addKey(of: FaultyModule.rsaIdentity.get(), to: 0, asksEachTime: true)
        module.fail("C_DecryptInit", CKR_ARGUMENTS_BAD, times: 2)
        let key = try find(adding: false)
        // One for the signature by which the key is found.
        #expect(schemes(key) == [.rsaPKCS1] && module.control.confirmations() == 1)
        #expect(module.control.tries_left(0) == 3)
        let ciphertext = try DecryptionScheme.rsaPKCS1.opensslEncrypt([1], for: publicKey)
        #expect(try await key.decrypter?.decrypt(ciphertext, using: .rsaPKCS1) == SecretBytes(copying: [1]))
        #expect(module.control.confirmations() == 2)
    }
}

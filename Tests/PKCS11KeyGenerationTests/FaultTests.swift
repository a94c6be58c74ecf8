import CP11Kit
import CertificateProviding
import Dispatch
import Synchronization
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// Tokens that fail in the middle of something must have nothing more on them than before.
@Suite(.serialized) struct FaultTests {
    let tokens: EmptyTokens
    let token: Token
    let authority: TestAuthority

    init() throws {
        tokens = try EmptyTokens.shared.get()
        authority = try TestAuthority()
        Faults.plan.withLock { $0 = Faults.Plan() }
        token = try Faults.token(tokens.module, InMemoryStorage())
    }

    @Test(arguments: [
        (CKR_DEVICE_MEMORY, ProviderError.Code.storeWriteFailed),
        (CKR_TOKEN_WRITE_PROTECTED, .storeWriteFailed), (CKR_SESSION_READ_ONLY, .storeWriteFailed),
        (CKR_GENERAL_ERROR, .storeWriteFailed), (CKR_MECHANISM_INVALID, .unsupportedAlgorithm),
        (CKR_TEMPLATE_INCONSISTENT, .unsupportedAlgorithm), (CKR_DEVICE_REMOVED, .tokenNotPresent),
        (CKR_PIN_EXPIRED, .rejected),
        // OpenSC's code for a card that wants its SO PIN.
        (CKR_USER_NOT_LOGGED_IN, .rejected),
    ])
    func generationFails(code: CK_RV, expected: ProviderError.Code) async throws {
        Faults.plan.withLock { $0.generation = code }
        let error = await expect(code: expected) {
            _ = try token.generateKey()
        }
        #expect(error?.nativeCode == Int(code) && error?.message.contains("C_GenerateKeyPair") == true)
        #expect(try tokens.count(.faults) == 0)
    }

    /// The next call finds it mended. A device that says of itself that it is broken, or is away, is asked once; one
    /// that fails for no reason given may have meant the template.
    @Test(arguments: [CKR_DEVICE_ERROR, CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED])
    func aBrokenDeviceIsConnectedToAnew(code: CK_RV) async throws {
        for isAway in [false, true] {
            try token.logIn(pin: nil)
            let link = try token.withConnection { $0.link }
            Faults.plan.withLock {
                $0 = Faults.Plan(generation: code)
                $0.isAway = isAway
            }
            await expect(code: isAway ? .tokenNotPresent : .storeWriteFailed) {
                _ = try token.generateKey()
            }
            #expect(Faults.plan.withLock { $0.generations } == (isAway || code == CKR_DEVICE_ERROR ? 1 : 2))
            Faults.plan.withLock { $0 = Faults.Plan() }
            #expect(try token.withConnection { $0.link } !== link)
        }
        try token.keys.discard(token.generateKey())
    }

    /// The pair is made, and then cannot be read.
    @Test func aPairThatCannotBeReadIsDestroyed() async throws {
        Faults.plan.withLock { $0.readingPoints = CKR_FUNCTION_FAILED }
        await expect(code: .storeWriteFailed) { _ = try token.generateKey() }
        #expect(try tokens.count(.faults) == 0)
    }

    /// To a module that ignores what it does not search by, every object has the new key's id.
    @Test func aModuleThatDoesNotSearchByIDKeepsItsObjects() async throws {
        let key = try token.generateKey()
        Faults.plan.withLock { $0.ignoresID = true }
        let second = try token.generateKey()
        #expect(try tokens.count(.faults) == 4)
        Faults.plan.withLock { $0.readingPoints = CKR_FUNCTION_FAILED }
        await expect(code: .storeWriteFailed) { _ = try token.generateKey() }
        Faults.plan.withLock { $0 = Faults.Plan() }
        #expect(try tokens.count(.faults) == 4)
        for key in [key, second] { try token.keys.discard(key) }
        #expect(try tokens.count(.faults) == 0)
    }

    /// The pair is made, and the token is away before it says so.
    @Test("A key pair that the token made before it was lost is destroyed")
    func whatAnInterruptedGenerationLeftIsDestroyed() async throws {
        Faults.plan.withLock { $0.lostGeneration = CKR_DEVICE_REMOVED }
        let key = try token.generateKey()
        #expect(try tokens.count(.faults) == 2)
        try token.keys.discard(key)
    }

    /// Modules refuse a template with codes that the standard has for other things.
    @Test(arguments: [
        CKR_ATTRIBUTE_TYPE_INVALID, CKR_TEMPLATE_INCONSISTENT, CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_HOST_MEMORY,
        CKR_ARGUMENTS_BAD, CKR_FUNCTION_NOT_SUPPORTED, 0x8000_0007,
    ])
    func aModuleThatRefusesATemplateIsAskedForLess(code: CK_RV) async throws {
        Faults.plan.withLock { $0.forbidding = code }
        let key = try token.generateKey()
        #expect(try tokens.count(.faults) == 2)
        try token.keys.discard(key)
    }

    /// The first attempt makes the pair, and says that it has failed.
    @Test(arguments: [CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_ARGUMENTS_BAD])
    func aFailedAttemptLeavesNothingBesideTheKey(code: CK_RV) async throws {
        Faults.plan.withLock { $0.lostGeneration = code }
        let key = try token.generateKey()
        #expect(Faults.plan.withLock { $0.generations } == 2)
        #expect(try tokens.count(.faults) == 2)
        try token.keys.discard(key)
    }

    /// Whatever the module says of the other template.
    @Test(arguments: [CKR_GENERAL_ERROR, CKR_TEMPLATE_INCONSISTENT])
    func aBrokenDeviceIsNotAnUnsupportedKey(first: CK_RV) async throws {
        Faults.plan.withLock {
            $0.forbidding = first
            $0.generation = first == CKR_GENERAL_ERROR ? CKR_TEMPLATE_INCONSISTENT : CKR_GENERAL_ERROR
        }
        let error = await expect(code: .storeWriteFailed) { _ = try token.generateKey() }
        #expect(error?.nativeCode == Int(CKR_GENERAL_ERROR))
        #expect(try tokens.count(.faults) == 0)
    }

    @Test(arguments: [CKR_FUNCTION_CANCELED, CKR_FUNCTION_REJECTED])
    func aPersonWhoCancelsIsNotAskedAgain(code: CK_RV) async throws {
        Faults.plan.withLock { $0.generation = code }
        #expect(throws: ProviderError.self) { try token.generateKey() }
        #expect(Faults.plan.withLock { $0.generations } == 1)
    }

    /// The leaf is written, the intermediate not.
    @Test(arguments: [CKR_DEVICE_MEMORY, CKR_TOKEN_WRITE_PROTECTED])
    func aChainIsWrittenWholeOrNotAtAll(code: CK_RV) async throws {
        let key = try token.generateKey()
        let leaf = try authority.certify(key.publicKey.derRepresentation, as: "leaf")
        for working in 0...1 {
            Faults.plan.withLock { $0.creation = (working, code) }
            let error = await expect(code: .storeWriteFailed) {
                _ = try token.keys.store([leaf, authority.intermediate], for: key)
            }
            #expect(error?.nativeCode == Int(code))
            #expect(try tokens.count(.faults) == 2)
        }
        // With room again, the same key gets its certificate.
        Faults.plan.withLock { $0 = Faults.Plan() }
        #expect(try token.keys.store([leaf, authority.intermediate], for: key)?.count == 2)
        try token.keys.discard(key)
        try token.keys.remove([authority.intermediate], for: key)
        #expect(try tokens.count(.faults) == 0)
    }

    /// A key that may only decrypt is not an identity, and its certificate does not lead to it. Nor is it a remnant of a
    /// deletion. Mail is read with it.
    @Test func aPairThatMayNotSignIsNoRemains() async throws {
        let id: [UInt8] = [0xd2]
        let made = try #require(KeyPairTemplate.all(.rsa2048, id: id, label: "mail", for: .pkcs1Decryption).first)
        let uses = [Attribute(CKA_SIGN, false), Attribute(CKA_DECRYPT, true)]
        let privateKey = made.privateKey.filter { attribute in !uses.contains { $0.type == attribute.type } } + uses
        let publicKey = try token.keys.write { connection, session throws(CryptokiError) -> PublicKeyInfo? in
            let pair = try session.generate(made.mechanism, publicKey: made.publicKey, privateKey: privateKey)
            return try TokenReader(session: session, slot: connection.slot).publicKey(pair.publicKey)
        }
        let certificate = try authority.certify(#require(publicKey).derRepresentation, as: "mail")
        let folder = try TemporaryDirectory()
        let file = try folder.write(certificate.derRepresentation, to: "mail.der")
        try tokens.write("cert", file, labelled: "mail", to: .faults, id: "d2")
        let deleting = try tokens.provider(.faults, object: ";id=%d2", ["delete-objects": "true"])
        #expect(try await deleting.announcedDeletions().isEmpty)
        try deleting.deleteStoredCertificate()
        #expect(try tokens.count(.faults) == 3)
        try token.keys.removeRemains(of: #require(publicKey), id: id)
        #expect(try tokens.count(.faults) == 3)
        try token.keys.destroyAll(id: id)
        #expect(try tokens.count(.faults) == 0)
    }

    /// As pkcs11-tool writes it without an id.
    @Test func aCopyThatWasThereBeforeStays() async throws {
        let key = try token.generateKey()
        let leaf = try authority.certify(key.publicKey.derRepresentation, as: "leaf")
        let file = try TemporaryDirectory()
        try tokens.write("cert", try file.write(leaf.derRepresentation, to: "leaf.der"), labelled: "copy", to: .faults)
        let written = try #require(try token.keys.store([leaf], for: key))
        #expect(written == [leaf])
        #expect(try tokens.count(.faults) == 4)
        try token.keys.remove(written, for: key)
        #expect(try tokens.listing(.faults).contains("copy"))
        try tokens.destroy("cert", labelled: "copy", on: .faults)
        try token.keys.discard(key)
        #expect(try tokens.count(.faults) == 0)
    }

    /// The leaf is written, the token is away before it says so, and has no room for the rest when it is back.
    @Test("Certificates that were written before a removal are destroyed as well")
    func whatWasWrittenBeforeARemovalGoesToo() async throws {
        let key = try token.generateKey()
        let leaf = try authority.certify(key.publicKey.derRepresentation, as: "leaf")
        Faults.plan.withLock {
            $0.lostAnswer = CKR_DEVICE_REMOVED
            $0.creation = (0, CKR_DEVICE_MEMORY)
        }
        await expect(code: .storeWriteFailed) { _ = try token.keys.store([leaf, authority.intermediate], for: key) }
        #expect(try tokens.count(.faults) == 2)
        Faults.plan.withLock { $0 = Faults.Plan() }
        try token.keys.discard(key)
    }

    @Test("An object that cannot be destroyed is named in the error")
    func whatCannotBeDestroyedIsNamed() async throws {
        let key = try token.generateKey()
        Faults.plan.withLock { $0.destruction = (1, CKR_ACTION_PROHIBITED) }
        let error = await expect(code: .deleteFailed) { try token.keys.discard(key) }
        #expect(error?.message.contains("the public key (C_DestroyObject: CKR_ACTION_PROHIBITED)") == true)
        #expect(error?.message.contains(key.id.hexEncoded) == true)
        Faults.plan.withLock { $0 = Faults.Plan() }
        try token.keys.write { _, session throws(CryptokiError) in try session.destroyAll(id: key.id) }
    }

    /// A request could not be signed with it, and neither can anything else.
    @Test(arguments: [CKR_FUNCTION_FAILED, CKR_DEVICE_ERROR, CKR_KEY_FUNCTION_NOT_PERMITTED, CKR_DATA_LEN_RANGE])
    func aKeyThatCannotSignIsTakenBack(code: CK_RV) async throws {
        let made = try token.keys.generate(.p256, label: "x")
        Faults.plan.withLock { $0.signing = code }
        #expect(throws: ProviderError.self) { try token.sign([1], with: made.key, by: made.key.mechanisms) }
        try made.takeBack()
        #expect(try tokens.count(.faults) == 0)
    }

    @Test("A new key pair that fails and cannot be destroyed is named in the error")
    func whatCannotBeTakenBackIsNamed() async throws {
        let made = try token.keys.generate(.p256, label: "x")
        Faults.plan.withLock {
            $0.signing = CKR_FUNCTION_FAILED
            $0.destruction = (0, CKR_ACTION_PROHIBITED)
        }
        let failure = try #require(await expect(code: .deleteFailed) { try made.takeBack() })
        let error = made.left(by: failure, after: ProviderError(.unavailable, "No request was made."))
        #expect(error.code == .unavailable && error.message.hasPrefix("No request was made. "))
        for part in ["the private key", "the public key", "id \(made.key.id.hexEncoded)"] {
            #expect(error.message.contains(part), "\(error.message)")
        }
        Faults.plan.withLock { $0 = Faults.Plan() }
        try made.takeBack()
        #expect(try tokens.count(.faults) == 0)
    }

    /// SoftHSM finds nothing on a token whose directory was moved away.
    @Test func aTokenThatVanishesHasNotLostItsKeys() async throws {
        let key = try token.generateKey()
        Faults.plan.withLock { $0.hasVanished = true }
        #expect(try token.keys.key(for: key.publicKey) != nil)
        Faults.plan.withLock { $0.hasVanished = true }
        _ = try token.sign([1], with: key, by: key.mechanisms)
        try token.keys.discard(key)
    }

    /// The key is ready only after its caller has given up.
    @Test func aLateKeyIsDestroyed() async throws {
        let token = try Faults.token(tokens.module, InMemoryStorage(), timeout: .milliseconds(300))
        try token.logIn(pin: nil)
        let (release, undone) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        await expect(code: .timedOut) {
            _ = try await token.calls.run(
                "making a key pair",
                undo: { (made: MadeKey) in
                    try? made.takeBack()
                    undone.signal()
                },
                { () throws(ProviderError) in
                    let made = try token.keys.generate(.p256, label: "late")
                    release.wait()
                    return made
                })
        }
        release.signal()
        let end = await BlockingExecutor.threads().wait(for: undone)
        #expect(end == .success)
        #expect(try tokens.count(.faults) == 0)
    }
}

import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// The proof of a key before an identity on its token is used.
@Suite(.timeLimit(.minutes(20))) struct PossessionTests {
    /// Nothing but the id ties them, which only a signature tells: one for as long as the connection lasts.
    @Test func aStoredIdentitySignsBeforeItIsUsed() async throws {
        let (module, identity) = try FaultyModule.withAnothersKey()
        let provider = try module.provider()
        let error = #expect(throws: ProviderError.self) { try provider.getStoredCertificate() }
        #expect(error?.code == .keyMismatch && error?.message.contains("id 01") == true, "\(String(describing: error))")
        try module.addKey(of: identity, to: 0)
        let before = module.calls("C_Sign")
        #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
        #expect(module.calls("C_Sign") == before + 2)
        for _ in 0..<3 { #expect(try provider.getStoredCertificate() != nil) }
        #expect(module.calls("C_Sign") == before + 2)
        // A listing says which one would be taken, and lets nothing sign.
        #expect(await provider.listIdentities().identities.count == 1)
        #expect(module.calls("C_Sign") == before + 2)
    }

    @Test("A key that is not that of the certificate signs no digest")
    func anothersKeySignsNoDigest() async throws {
        let authority = try FaultyModule.authority.get()
        let identity = try authority.issue("client")
        let module = try FaultyModule.withIdentity(identity)
        module.control.set_token(1, "alpha", "0001", FaultyModule.pin)
        try module.add(identity.certificate, to: 1, id: 1)
        try module.addKey(of: authority.issue("other"), to: 1)
        let key = try await module.provider().getCertificate(NoUserInteraction()).key
        #expect(try await key.signsDigestValidly())
        let before = module.calls("C_Sign")
        #expect(try await key.signsDigestValidly())
        #expect(module.calls("C_Sign") == before + 1)
        // The same token comes back with another key.
        module.control.insert(0, -1)
        module.control.insert(0, 1)
        #expect(await code { _ = try await key.signsDigestValidly() } == .keyMismatch)
        module.control.insert(0, -1)
        #expect(await code { _ = try await key.signsDigestValidly() } == .tokenNotPresent)
        module.control.insert(0, 0)
        #expect(try await key.signsDigestValidly())
    }

    @Test("A key that is looked for by its public key signs one probe, and is not looked for again")
    func aKeyIsLookedForOnce() async throws {
        let identity = try FaultyModule.authority.get().issue("client")
        let module = try FaultyModule.withIdentity(identity, asksEachTime: true)
        let reference = KeyReference(publicKey: identity.key.publicKey, uri: "pkcs11:token=alpha;id=%01")
        let store = try #require(module.provider().keyStore)
        let key = try #require(try await store.key(for: reference, NoUserInteraction()))
        let searches = module.calls("C_FindObjectsInit")
        #expect(try await key.signsDigestValidly())
        #expect(module.calls("C_FindObjectsInit") == searches)
        #expect(module.calls("C_Sign") == 2 && module.control.confirmations() == 2)
    }

    @Test func aKeyThatShowsItsModulusSignsNoProbe() async throws {
        let module = try FaultyModule.withIdentity(FaultyModule.rsaIdentity.get())
        #expect(try module.provider().getStoredCertificate() != nil)
        #expect(module.calls("C_Sign") == 0)
    }

    /// A key that wants the PIN each time gets the configured one for it, and asks no person at the reader's pad.
    @Test func aKeyThatAsksEachTimeIsProvenWithTheConfiguredPIN() async throws {
        for hasPad in [false, true] {
            let module = try FaultyModule.withIdentity(asksEachTime: true)
            if hasPad { module.control.set_flags(0, CK_FLAGS(CKF_PROTECTED_AUTHENTICATION_PATH), 0) }
            let provider = try module.provider()
            // A person has been at the pad, and the key has not signed yet.
            let other = try FaultyModule.authority.get().issue("other").key.publicKey
            if hasPad { #expect(try await provider.key(for: other, NoUserInteraction()) == nil) }
            let before = module.control.confirmations()
            for _ in 0..<2 { #expect(try provider.getStoredCertificate() != nil) }
            #expect(module.control.confirmations() == before + (hasPad ? 0 : 1))
        }
    }
}

/// A card refuses a signature, and its module takes the login for lost.
@Suite(.timeLimit(.minutes(20))) struct RefusedSignatureTests {
    @Test(arguments: [false, true]) func theErrorSaysWhatTheCardSaid(asksEachTime: Bool) async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: asksEachTime)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.refuse_signatures(0, CKR_USER_NOT_LOGGED_IN)
        let before = module.calls("C_Sign")
        let error = try #require(await failure { try await identity.key.signsValidly() })
        #expect(error.code == .rejected && error.message.contains("C_Sign: CKR_USER_NOT_LOGGED_IN"), "\(error)")
        #expect(error.message.contains("'alpha' refuses to use the key"), "\(error)")
        #expect(error.nativeCode == Int(CKR_USER_NOT_LOGGED_IN))
        // Once more after a login, and then no more.
        #expect(module.calls("C_Sign") == before + 2 && module.control.tries_left(0) == 3)
        module.control.refuse_signatures(0, CKR_OK)
        #expect(try await identity.key.signsValidly())
    }

    /// It was another part of the process that has logged out.
    @Test func aLoginThatWasLostIsMadeAgain() async throws {
        let module = try FaultyModule.withIdentity()
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.publish_keys(0, 1)
        for _ in 0..<3 {
            module.control.log_out(0)
            #expect(try await identity.key.signsValidly())
        }
    }
}

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
        let module = try FaultyModule()
        module.control.set_token(0, "alpha", "0001", FaultyModule.pin)
        module.control.set_token(1, "alpha", "0001", FaultyModule.pin)
        let authority = try FaultyModule.authority.get()
        let (identity, other) = (try authority.issue("client"), try authority.issue("other"))
        try module.add(identity, to: 0)
        try module.add(identity.certificate, to: 1, id: 1)
        try module.addKey(of: other, to: 1)
        module.control.insert(0, 0)
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

    @Test func aKeyThatShowsItsModulusSignsNoProbe() async throws {
        let module = try FaultyModule()
        module.control.set_token(0, "alpha", "0001", FaultyModule.pin)
        try module.add(FaultyModule.rsaIdentity.get(), to: 0)
        module.control.insert(0, 0)
        #expect(try module.provider().getStoredCertificate() != nil)
        #expect(module.calls("C_Sign") == 0)
    }

    /// A key that wants the PIN each time gets the configured one for it, and asks no person at the reader's pad.
    @Test func aKeyThatAsksEachTimeIsProvenWithTheConfiguredPIN() async throws {
        for hasPad in [false, true] {
            let module = try FaultyModule()
            module.control.set_token(0, "alpha", "0001", FaultyModule.pin)
            try module.add(FaultyModule.authority.get().issue("client"), to: 0, asksEachTime: true)
            if hasPad { module.control.set_flags(0, CK_FLAGS(CKF_PROTECTED_AUTHENTICATION_PATH), 0) }
            module.control.insert(0, 0)
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

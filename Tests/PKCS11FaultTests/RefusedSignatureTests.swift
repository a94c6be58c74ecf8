import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// A card refuses a signature, and its module takes the login for lost.
@Suite(.timeLimit(.minutes(20))) struct RefusedSignatureTests {
    @Test(arguments: [false, true]) func theErrorSaysWhatTheCardSaid(asksEachTime: Bool) async throws {
        let module = try FaultyModule()
        module.control.set_token(0, "alpha", "0001", FaultyModule.pin)
        try module.add(FaultyModule.authority.get().issue("client"), to: 0, asksEachTime: asksEachTime)
        module.control.insert(0, 0)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.refuse_signatures(0, CKR_USER_NOT_LOGGED_IN)
        let before = module.calls("C_Sign")
        do {
            _ = try await identity.key.signsValidly()
            Issue.record("signed")
        } catch let error as ProviderError {
            #expect(error.code == .rejected && error.message.contains("C_Sign: CKR_USER_NOT_LOGGED_IN"), "\(error)")
            #expect(error.message.contains("'alpha' refuses to use the key"), "\(error)")
            #expect(error.nativeCode == Int(CKR_USER_NOT_LOGGED_IN))
        }
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

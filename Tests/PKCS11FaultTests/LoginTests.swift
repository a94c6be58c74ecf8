import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(20))) struct LoginTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    @Test("A login that another provider has made is used")
    func somebodyElseHasLoggedIn() async throws {
        let first = try await module.provider().getCertificate(NoUserInteraction())
        let second = try await module.provider().getCertificate(NoUserInteraction())
        #expect(try await first.key.signsValidly())
        #expect(try await second.key.signsValidly())
    }

    /// The login is the process's: a logout by one part ends it for all parts, which then log in again.
    @Test func aLogoutBreaksNobodyElse() async throws {
        let first = try module.provider()
        _ = try await first.getCertificate(NoUserInteraction())
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        try first.deleteStoredCertificate()
        #expect(try await identity.key.signsValidly())
    }

    /// Nor does a logout by a part that had found the user logged in.
    @Test func aLoginOfAnotherPartIsLeftAlone() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let second = try module.provider()
        _ = try await second.getCertificate(NoUserInteraction())
        let pins = module.control.pins()
        try second.deleteStoredCertificate()
        #expect(try await identity.key.signsValidly())
        #expect(module.calls("C_Logout") == 0 && module.control.pins() == pins)
    }

    @Test func aTokenWithoutALoginIsSentNoPIN() async throws {
        module.control.set_flags(0, 0, CK_FLAGS(CKF_LOGIN_REQUIRED))
        let person = Person(FaultyModule.pin)
        for provider in [try module.provider(), try module.provider(pin: nil)] {
            #expect(try await provider.getCertificate(person).key.signsValidly())
            #expect(try provider.getStoredCertificate() != nil)
        }
        #expect(person.timesAsked == 0)
        #expect(module.calls("C_Login") == 0)
    }

    /// The reader asks for the PIN itself: never from a call that must not prompt.
    @Test func aPINPadAsksByItself() async throws {
        module.control.set_flags(0, CK_FLAGS(CKF_PROTECTED_AUTHENTICATION_PATH), 0)
        let provider = try module.provider()
        #expect(try provider.getStoredCertificate() == nil)
        _ = await provider.listIdentities()
        #expect(module.calls("C_Login") == 0)
        let person = Person("9999")
        #expect(try await provider.getCertificate(person).key.signsValidly())
        #expect(try provider.getStoredCertificate() != nil)
        #expect(person.timesAsked == 0 && module.control.pins() == 0)
    }

    @Test func aKeyThatAsksEachTimeIsAnsweredEachTime() async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: true)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let before = module.control.confirmations()
        for _ in 0..<3 { #expect(try await identity.key.signsValidly()) }
        #expect(module.control.confirmations() == before + 3)
    }

    /// OpenSC calls it that where the login was lost between `C_SignInit` and `C_Login`.
    @Test func aLogoutBeforeTheAnswerIsFollowedByALogin() async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: true)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.fail("C_Login", CKR_OPERATION_NOT_INITIALIZED)
        #expect(try await identity.key.signsValidly())
        // Not for ever.
        module.fail("C_Login", CKR_OPERATION_NOT_INITIALIZED, times: 100)
        #expect(await code { _ = try await identity.key.signsValidly() } != nil)
        module.fail("C_Login", CKR_OK, times: 0)
        #expect(try await identity.key.signsValidly())
        #expect(module.control.tries_left(0) == 3)
    }

    /// The PIN is changed while the key is in use.
    @Test func aRefusalAtASignatureIsTheLast() async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: true)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.set_token(0, "alpha", "0001", "5678")
        for _ in 0..<4 { #expect(await code { _ = try await identity.key.signsValidly() } == .pinIncorrect) }
        #expect(module.control.tries_left(0) == 2)
    }

    /// A look for a key lets it sign, which is a use of the PIN like any other.
    @Test func aRefusalAtAProbeIsTheLast() async throws {
        let identity = try FaultyModule.rsaIdentity.get()
        let module = try FaultyModule.withIdentity(identity, asksEachTime: true)
        let provider = try module.provider()
        _ = try await provider.getCertificate(NoUserInteraction())
        module.control.set_token(0, "alpha", "0001", "5678")
        for _ in 0..<3 {
            let outcome = await code { _ = try await provider.key(for: identity.key.publicKey, NoUserInteraction()) }
            #expect(outcome == .pinIncorrect)
        }
        #expect(module.control.tries_left(0) == 2)
    }

    /// The key is public, or another part of the process has logged in.
    @Test(arguments: [true, false]) func withoutALoginWhatIsVisibleIsUsed(isPublic: Bool) async throws {
        let other = try module.provider()
        if isPublic {
            module.control.set_visibility(0, 1, 1)
        } else {
            _ = try await other.getCertificate(NoUserInteraction())
        }
        let logins = module.calls("C_Login")
        let provider = try module.provider(["login": "never"])
        let identity = try await provider.getCertificate(NoUserInteraction())
        #expect(try await identity.key.signsValidly())
        // The other part's login ends with the last session, or sooner.
        module.control.set_visibility(0, 1, 0)
        try other.deleteStoredCertificate()
        #expect(await code { _ = try await identity.key.signsValidly() } == .interactionRequired)
        #expect(module.calls("C_Login") == logins)
    }

    /// A token that does not demand a login may still show more after one.
    @Test func alwaysMeansAlsoWhereNothingDemandsIt() async throws {
        module.control.set_flags(0, 0, CK_FLAGS(CKF_LOGIN_REQUIRED))
        let provider = try module.provider(["login": "always"])
        #expect(await provider.listIdentities().identities.count == 1)
        #expect(module.calls("C_Login") == 1)
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
        // A person is not asked without need.
        let attended = try module.provider(pin: nil, ["login": "always"])
        let person = Person(FaultyModule.pin)
        #expect(try await attended.getCertificate(person).key.signsValidly())
        #expect(person.timesAsked == 0)
    }
}

import CP11Kit
import CertificateProviding
import FaultyModuleControl
import Synchronization
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// PINs that were on their way to a token that has not looked at them: nothing is held against those.
@Suite(.timeLimit(.minutes(20))) struct UnseenPINTests {
    private let storage = InMemoryStorage()
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    private static let concealed = CK_FLAGS(CKF_USER_PIN_COUNT_LOW | CKF_USER_PIN_FINAL_TRY | CKF_USER_PIN_LOCKED)

    /// The token is taken out in the moment before the login, again and again.
    @Test(arguments: [CKR_DEVICE_REMOVED, CKR_DEVICE_ERROR, CKR_GENERAL_ERROR, CKR_SESSION_HANDLE_INVALID])
    func aLoginThatIsNotReachedIsNoAttempt(result: CK_RV) async throws {
        _ = try await module.provider(storage: storage).getCertificate(NoUserInteraction())
        let logins = module.calls("C_Login")
        for _ in 0..<3 {
            // The first session is the one that stays. A token that is named is not read before the login.
            module.fail("C_OpenSession", result, after: 1, times: 8)
            let provider = try module.provider(storage: storage, ["uri": "pkcs11:token=alpha"])
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } != nil)
            module.fail("C_OpenSession", CKR_OK, times: 0)
        }
        #expect(module.calls("C_Login") == logins)
        _ = try await module.provider(storage: storage).getCertificate(NoUserInteraction())
    }

    @Test(
        "A login that failed before the token saw the PIN does not count as an attempt",
        arguments: [CKR_TOKEN_NOT_PRESENT, CKR_SLOT_ID_INVALID, CKR_ARGUMENTS_BAD])
    func whatWasThereAtTheCallIsNoAttempt(result: CK_RV) async throws {
        for _ in 0..<3 {
            module.fail("C_Login", result)
            let provider = try module.provider(storage: storage)
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } != nil)
        }
        _ = try await module.provider(storage: storage).getCertificate(NoUserInteraction())
    }

    /// A caller that is told that nothing is stored asks for a new identity, which would send it again.
    @Test func aPINIsSentOnceInOneGo() async throws {
        module.fail("C_Login", CKR_DEVICE_REMOVED)
        let provider = try module.provider()
        #expect(await code { _ = try provider.getStoredCertificate() } == .tokenNotPresent)
        #expect(module.calls("C_Login") == 1)
    }

    /// Some tokens unlock with time, and never show that they are locked.
    @Test func aLockThatIsOverIsNotHeldAgainstAPINThatWasRight() async throws {
        module.control.set_flags(0, 0, Self.concealed)
        _ = try await module.provider(storage: storage).getCertificate(NoUserInteraction())
        for _ in 0..<3 {
            module.fail("C_Login", CKR_PIN_LOCKED)
            let provider = try module.provider(storage: storage)
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .pinLocked)
        }
        _ = try await module.provider(storage: storage).getCertificate(NoUserInteraction())
    }

    /// It may be what has locked the token, and gets one more try then: what meets the lock is not looked at.
    @Test(arguments: [FaultyModule.pin, "9999"]) func anUnknownPINThatMeetsALockIsTriedOnceMore(pin: String)
        async throws
    {
        module.control.set_flags(0, 0, Self.concealed)
        module.fail("C_Login", CKR_PIN_LOCKED, times: 3)
        let codes = try await [0, 1, 2, 3, 4].asyncMap { _ in
            let provider = try module.provider(pin: pin, storage: storage)
            return await code { _ = try await provider.getCertificate(NoUserInteraction()) }
        }
        let last: ProviderError.Code? = pin == FaultyModule.pin ? nil : .pinIncorrect
        #expect(codes == [.pinLocked, .pinLocked, .pinLocked, last, last])
        // Three of them met the lock.
        #expect(module.control.pins() == 3 + (pin == FaultyModule.pin ? 2 : 1))
    }

    /// The serial number says which card it is, and what it is called does not.
    @Test(arguments: [("0001", true), ("0000", false)])
    func aCardWithAnotherLabelHasNoMoreTries(serial: String, isKnown: Bool) async throws {
        for label in ["alpha", "beta"] {
            module.control.set_token(0, label, serial, FaultyModule.pin)
            let provider = try module.provider(pin: "9999", storage: storage, ["uri": "pkcs11:token=\(label)"])
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .pinIncorrect)
        }
        #expect(module.control.pins() == (isKnown ? 1 : 2))
    }

    /// All tokens of opencryptoki have the serial number 123.
    @Test func aPINThatOneTokenRejectsIsSentToTheOneThatHasAcceptedIt() async throws {
        func get(_ label: String, tokenPIN: String) async throws -> ProviderError.Code? {
            // Taken out and put in: a new token has no login left from the one before.
            module.control.insert(0, -1)
            module.control.set_token(0, label, "123", tokenPIN)
            module.control.insert(0, 0)
            let provider = try module.provider(pin: "5678", storage: storage, ["uri": "pkcs11:token=\(label)"])
            return await code { _ = try await provider.getCertificate(NoUserInteraction()) }
        }
        #expect(try await get("beta", tokenPIN: "5678") == nil)
        #expect(try await get("alpha", tokenPIN: "1234") == .pinIncorrect)
        #expect(try await get("beta", tokenPIN: "5678") == nil)
        // One that has accepted nothing is not sent it.
        let sent = module.control.pins()
        #expect(try await get("gamma", tokenPIN: "5678") == .pinIncorrect)
        #expect(try await get("alpha", tokenPIN: "1234") == .pinIncorrect)
        #expect(module.control.pins() == sent)
    }

    /// The token has looked at the PIN, and its user is not logged in.
    @Test func aLoginThatIsThereAlreadyAndIsNotCostsOneTry() async throws {
        module.control.lose("C_Login", 100, CKR_USER_ALREADY_LOGGED_IN)
        let provider = try module.provider(pin: "9999")
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } != nil)
        #expect(await provider.listIdentities().failures.map(\.code) == [.pinIncorrect])
        #expect(module.control.pins() == 1)
    }

    /// A key that asks each time, and a module that says that it has been answered.
    @Test func aConfirmationThatWasMadeIsOne() async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: true)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.lose("C_Login", 1, CKR_USER_ALREADY_LOGGED_IN)
        #expect(try await identity.key.signsValidly())
    }

    /// While this one waited for its turn, or had it without sending anything.
    @Test(
        "A wrong PIN of others is not held against a PIN that got no verdict",
        arguments: [
            (InterruptedStorage.Moment.turn, "C_Login", CKR_GENERAL_ERROR), (.turn, "C_OpenSession", CKR_DEVICE_MEMORY),
            (.record, "C_OpenSession", CKR_DEVICE_MEMORY),
        ])
    func theCountOfOthersIsNoVerdict(moment: InterruptedStorage.Moment, function: String, result: CK_RV) async throws {
        let storage = InterruptedStorage(at: moment) {
            module.control.set_flags(0, CK_FLAGS(CKF_USER_PIN_COUNT_LOW), 0)
            module.fail(function, result)
        }
        let settings = ["uri": "pkcs11:token=alpha"]
        let provider = try module.provider(storage: storage, settings)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .unavailable)
        let next = try module.provider(storage: storage, settings)
        #expect(try await next.getCertificate(NoUserInteraction()).key.signsValidly())
    }

    /// The token may be away by then: it has not taken the PIN with it.
    @Test("A login that was not made counts as none", arguments: [CKR_FUNCTION_FAILED, CKR_DEVICE_ERROR])
    func aLoginThatWasNotMadeIsNone(code: CK_RV) throws {
        let uri = try PKCS11URI("pkcs11:")
        let reference = try #require(ModuleLoader.modules(for: uri, path: module.path, timeout: .seconds(600)).first)
        let started = try #require(try reference.module(for: uri))
        let slot = try #require(Slot.look(at: started).slots.first)
        let environment = ProviderEnvironment.testing()
        let tried = TriedPINs(
            storage: environment.storage, timeout: .seconds(600), now: environment.now, logger: environment.logger)
        let token = Token(
            slot, calls: reference.calls,
            pins: PINSupply(
                source: nil, value: nil, secrets: environment.secrets,
                policy: PINPolicy(tried: tried, logger: environment.logger), isPermitted: true),
            pending: PendingKeys(storage: environment.storage, logger: environment.logger, now: environment.now))
        module.control.insert(0, -1)
        let error = token.specific(CryptokiError(function: "C_Login", code: code, origin: .notMade))
        if case .notMade = error.origin { return }
        Issue.record("\(error) is \(error.origin)")
    }
}

/// Storage in which something happens once: while another process has the turn to log in, or before a login is written
/// down.
final class InterruptedStorage: StorageWrapper {
    var wrapped: any IdentityStorage { storage }
    enum Moment { case turn, record }

    private let storage = InMemoryStorage()
    private let moment: Moment
    private let event: Mutex<(@Sendable () -> Void)?>

    init(at moment: Moment, _ event: @escaping @Sendable () -> Void) {
        self.moment = moment
        self.event = Mutex(event)
    }

    /// - Returns: Whether it was now.
    private func happens(_ now: Moment, _ name: String) -> Bool {
        guard now == moment, name.hasPrefix("pins-") else { return false }
        let event = event.withLock { event in
            defer { event = nil }
            return event
        }
        event?()
        return event != nil
    }

    func updateRecord(
        named name: String, _ change: (SecretBytes?) throws(ProviderError) -> SecretBytes?
    ) throws(ProviderError) {
        _ = happens(.record, name)
        try storage.updateRecord(named: name, change)
    }

    func leaseRecord(named name: String) throws(ProviderError) -> RecordLease? {
        happens(.turn, name) ? nil : try storage.leaseRecord(named: name)
    }
}

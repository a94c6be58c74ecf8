import CP11Kit
import CertificateProviding
import FaultyModuleControl
import IdentityStore
import PKCS11TokenProvider
import Synchronization
import TestSupport
import Testing

/// A token locks after three wrong PINs, so each one is worth counting.
@Suite(.timeLimit(.minutes(20))) struct PINTests {
    private let storage = InMemoryStorage()
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    @Test func aWrongPINIsSentOnceInTenRestarts() async throws {
        for _ in 0..<10 {
            let provider = try module.provider(pin: "9999", storage: storage)
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .pinIncorrect)
            #expect(await code { _ = try provider.getStoredCertificate() } == .pinIncorrect)
            _ = await provider.listIdentities()
        }
        #expect(module.control.pins() == 1)
        #expect(module.control.tries_left(0) == 2)
        // Another PIN is another matter.
        _ = try await module.provider(storage: storage).getCertificate(NoUserInteraction())
        #expect(module.control.tries_left(0) == 3)
    }

    @Test func twentyTasksSendAWrongPINOnce() async throws {
        let provider = try module.provider(pin: "9999")
        await withTaskGroup(of: ProviderError.Code?.self) { tasks in
            for _ in 0..<20 {
                tasks.addTask { await code { _ = try await provider.getCertificate(NoUserInteraction()) } }
            }
            for await code in tasks { #expect(code == .pinIncorrect) }
        }
        #expect(module.control.pins() == 1)
    }

    /// Two services, one store.
    @Test func twoProvidersAtOnceSendAWrongPINOnce() async throws {
        module.control.hold("C_Login")
        let first = try module.provider(pin: "9999", storage: storage)
        async let one = code { _ = try await first.getCertificate(NoUserInteraction()) }
        try await module.waitUntilHeld(1)
        let hasty = try module.provider(pin: "9999", storage: storage, ["timeout": "1"])
        // On a slow host the second is over before it gets to ask.
        let outcome = await code { _ = try await hasty.getCertificate(NoUserInteraction()) }
        #expect(outcome == .operationNotAllowed || outcome == .timedOut)
        // One that has time waits for what comes of it.
        let second = try module.provider(pin: "9999", storage: storage)
        async let other = code { _ = try await second.getCertificate(NoUserInteraction()) }
        module.control.release()
        #expect(await one == .pinIncorrect)
        #expect(await other == .pinIncorrect)
        #expect(module.control.pins() == 1)
    }

    /// As many services, each with the store on disk for itself.
    @Test func manyProvidersOnOneStoreSendAWrongPINOnce() async throws {
        let directory = try TemporaryDirectory()
        module.control.hold("C_Login")
        try await withThrowingTaskGroup(of: ProviderError.Code?.self) { tasks in
            for _ in 0..<16 {
                tasks.addTask {
                    await code {
                        let store = IdentityStore(path: directory["state"])
                        let storage = store.storage(for: PKCS11TokenProvider.id)
                        let provider = try module.provider(pin: "9999", storage: storage)
                        _ = try await provider.getCertificate(NoUserInteraction())
                    }
                }
            }
            try await module.waitUntilHeld(1)
            // Most have a session for their login by now. One that comes later opens it after this one.
            for _ in 0..<2000 where module.calls("C_OpenSession") < 16 { try await Task.sleep(for: .milliseconds(1)) }
            module.control.release()
            for try await code in tasks { #expect(code == .pinIncorrect) }
        }
        #expect(module.control.pins() == 1)
        #expect(module.control.tries_left(0) == 2)
    }

    @Test("A typed PIN is sent once for each question")
    func whatAPersonGivesIsSentOncePerQuestion() async throws {
        let provider = try module.provider(pin: nil)
        let person = Person("9999")
        for left: UInt32 in [2, 1] {
            #expect(await code { _ = try await provider.getCertificate(person) } == .pinIncorrect)
            #expect(module.control.tries_left(0) == left)
        }
        #expect(person.timesAsked == 2)
        // Also at the last try: it is their token.
        #expect(try await provider.getCertificate(Person(FaultyModule.pin)).key.signsValidly())
        #expect(module.control.tries_left(0) == 3)
    }

    @Test func theLastTryIsLeftToAPerson() async throws {
        module.control.set_flags(0, CK_FLAGS(CKF_USER_PIN_FINAL_TRY), 0)
        let provider = try module.provider()
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .pinFinalTry)
        #expect(module.control.pins() == 0)
        let attended = try module.provider(pin: nil)
        #expect(try await attended.getCertificate(Person(FaultyModule.pin)).key.signsValidly())
        // The last try is also theirs who type it at the reader.
        let other = try FaultyModule.withIdentity()
        other.control.set_flags(0, CK_FLAGS(CKF_USER_PIN_FINAL_TRY | CKF_PROTECTED_AUTHENTICATION_PATH), 0)
        let padded = try other.provider(pin: nil)
        #expect(await code { _ = try await padded.getCertificate(NoUserInteraction()) } == .interactionRequired)
        #expect(other.calls("C_Login") == 0)
        #expect(try await padded.getCertificate(Person(FaultyModule.pin)).key.signsValidly())
    }

    @Test("A person at the PIN pad has more time than a module", arguments: [true, false])
    func whoEntersThePINAtThePadHasTime(looksForKey: Bool) async throws {
        module.control.set_flags(0, CK_FLAGS(CKF_PROTECTED_AUTHENTICATION_PATH), 0)
        module.control.slow_down("C_Login", 10_000)
        let provider = try module.provider(pin: nil, ["timeout": "5", "uri": "pkcs11:token=alpha"])
        let reader = Person(confirming: true)
        try await inTime {
            if looksForKey {
                _ = try await provider.key(for: FaultyModule.rsaIdentity.get().key.publicKey, reader)
            } else {
                _ = try await provider.getCertificate(reader)
            }
        }
        #expect(reader.reports.count == 1)
    }

    @Test func aPersonHearsHowManyTriesThereAre() async throws {
        for (flag, word) in [(0, "'"), (CKF_USER_PIN_COUNT_LOW, "a wrong PIN"), (CKF_USER_PIN_FINAL_TRY, "last try")] {
            let module = try FaultyModule.withIdentity()
            module.control.set_flags(0, CK_FLAGS(flag), 0)
            let person = Person(FaultyModule.pin)
            _ = try await module.provider(pin: nil).getCertificate(person)
            #expect(person.questions.count == 1 && person.questions[0].contains("'alpha'"))
            #expect(person.questions[0].contains(word) && person.questions[0].contains("(") == (flag != 0))
        }
    }

    @Test func aLockedTokenIsSentNothing() async throws {
        module.control.set_flags(0, CK_FLAGS(CKF_USER_PIN_LOCKED), 0)
        for provider in [try module.provider(), try module.provider(pin: nil)] {
            #expect(await code { _ = try await provider.getCertificate(Person(FaultyModule.pin)) } == .pinLocked)
        }
        #expect(module.control.pins() == 0)
    }

    /// No flag is ever set, and the counter falls all the same.
    @Test func flagsThatLieCostNoFurtherTry() async throws {
        let flags = CKF_USER_PIN_COUNT_LOW | CKF_USER_PIN_FINAL_TRY | CKF_USER_PIN_LOCKED
        module.control.set_flags(0, 0, CK_FLAGS(flags))
        for _ in 0..<4 {
            let provider = try module.provider(pin: "9999", storage: storage)
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .pinIncorrect)
        }
        #expect(module.control.tries_left(0) == 2)
    }

    @Test(arguments: [
        (CKR_PIN_INCORRECT, ProviderError.Code.pinIncorrect), (CKR_PIN_INVALID, .pinIncorrect),
        (CKR_PIN_LEN_RANGE, .pinIncorrect),
    ])
    func aRefusalIsRemembered(result: CK_RV, expected: ProviderError.Code) async throws {
        module.fail("C_Login", result)
        let codes = try await [0, 1].asyncMap { _ in
            let provider = try module.provider(storage: storage)
            return await code { _ = try await provider.getCertificate(NoUserInteraction()) }
        }
        #expect(codes == [expected, .pinIncorrect])
        #expect(module.calls("C_Login") == 1)
    }

    @Test(arguments: [
        (CKR_PIN_EXPIRED, ProviderError.Code.rejected),
        (CKR_DEVICE_REMOVED, .tokenNotPresent), (CKR_FUNCTION_CANCELED, .userCancelled),
        (CKR_GENERAL_ERROR, .unavailable),
    ])
    func anotherFailureIsNoRefusal(result: CK_RV, expected: ProviderError.Code) async throws {
        module.fail("C_Login", result)
        let provider = try module.provider()
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == expected)
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
    }

    /// The token's flags say that it has a PIN, and the module has not compared ours. An operation starts the module again.
    @Test func aPINThatTheModuleDoesNotKnowStartsItAgain() async throws {
        module.fail("C_Login", CKR_USER_PIN_NOT_INITIALIZED, times: 3)
        let provider = try module.provider()
        for logins: UInt32 in [2, 3] {
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .rejected)
            #expect(module.calls("C_Login") == logins && module.calls("C_Initialize") == logins)
        }
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
    }

    /// Operations of others, of which one is always in progress, put the start off and do not prevent it.
    @Test func theStartForAPINThatTheModuleDoesNotKnowWaitsForOthers() async throws {
        var starts: UInt32 = 0
        // A busy host may need more time than the start has.
        for _ in 0..<5 where starts < 2 {
            let module = try FaultyModule.withIdentity()
            module.fail("C_Login", CKR_USER_PIN_NOT_INITIALIZED)
            let (provider, other) = try (module.provider(), module.provider(["login": "never"]))
            module.control.slow_down("C_FindObjects", 400)
            let others = (0..<4).map { _ in Task { while !Task.isCancelled { _ = await other.listIdentities() } } }
            while module.calls("C_FindObjects") == 0 { try await Task.sleep(for: .milliseconds(1)) }
            async let identity = provider.getCertificate(NoUserInteraction())
            while module.calls("C_Login") < 2 { try await Task.sleep(for: .milliseconds(1)) }
            module.control.slow_down("C_FindObjects", 0)
            starts = module.calls("C_Initialize")
            for task in others { task.cancel() }
            #expect(try await identity.key.signsValidly())
            for task in others { await task.value }
        }
        #expect(starts == 2)
    }

    /// The card took the PIN as wrong, and its answer was lost on the way.
    @Test func aLostAnswerIsARefusalWhenTheCounterFell() async throws {
        module.control.lose("C_Login", 1, CKR_DEVICE_ERROR)
        for _ in 0..<3 {
            let provider = try module.provider(pin: "9999", storage: storage)
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } != nil)
        }
        #expect(module.control.tries_left(0) == 2)
    }

    @Test("If the record of PINs cannot be written, no PIN is sent")
    func nothingIsSentWhenItCouldNotBeRemembered() async throws {
        let provider = try module.provider(pin: "9999", storage: storage)
        storage.fail(with: ProviderError(.storeWriteFailed, "The disk is full."))
        for _ in 0..<3 {
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .storeWriteFailed)
        }
        storage.fail(with: ProviderError(.storeWriteFailed, "The disk is full."), whenReading: false)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .storeWriteFailed)
        #expect(module.control.pins() == 0)
    }

    /// A PIN is one token's: with two of them, a wrong guess would cost one its try.
    @Test func aPINGoesToNoTokenThatItIsNotFor() async throws {
        module.control.set_token(1, "beta", "0002", "5678")
        module.control.insert(1, 1)
        let provider = try module.provider()
        // The certificates say which token it is on.
        _ = await provider.listIdentities()
        #expect(module.control.pins() == 1 && module.control.tries_left(1) == 3)
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
        try module.add(FaultyModule.authority.get().issue("other"), to: 1)
        let ambiguous = try module.provider()
        #expect(await code { _ = try await ambiguous.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        let named = try module.provider(pin: "5678", ["uri": "pkcs11:token=beta"])
        #expect(try await named.getCertificate(NoUserInteraction()).key.signsValidly())
        #expect(module.control.tries_left(0) == 3 && module.control.tries_left(1) == 3)
    }
}

extension Array {
    func asyncMap<T>(_ body: (Element) async throws -> T) async rethrows -> [T] {
        var result: [T] = []
        for element in self { result.append(try await body(element)) }
        return result
    }
}

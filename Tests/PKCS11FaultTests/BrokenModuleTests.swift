import CP11Kit
import CertificateProviding
import FaultyModuleControl
import Foundation
import Logging
import PKCS11TokenProvider
import Synchronization
import TestSupport
import Testing

/// A module in which something has broken, such as the connection to a TPM or an HSM: it shows its token, and each login or
/// signature fails until it is started again.
@Suite(.timeLimit(.minutes(20))) struct BrokenModuleTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    private static let answers = [
        CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_DEVICE_ERROR, CKR_SESSION_HANDLE_INVALID,
    ]

    /// The same signature succeeds after the new start, so that no caller notices.
    @Test(arguments: answers) func aBrokenSignatureIsMadeAfterANewStart(answer: CK_RV) async throws {
        let log = TestLog()
        let identity = try await module.provider(logger: log.logger).getCertificate(NoUserInteraction())
        let starts = module.calls("C_Initialize")
        module.control.break_down("C_Sign", answer)
        #expect(try await identity.key.signsValidly())
        #expect(module.calls("C_Initialize") == starts + 1)
        let warnings = log.warnings.filter { $0.contains("started again") }
        #expect(warnings.count == 1, "\(log.text)")
        #expect(module.control.tries_left(0) == 3 && module.control.pins() == 1 + 2)
    }

    /// The operation that has met a failed login does not send the PIN again. The next one does, by the rules for a PIN that the
    /// token has accepted before.
    @Test(arguments: answers) func aBrokenLoginIsMadeByALaterOperation(answer: CK_RV) async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let starts = module.calls("C_Initialize")
        module.control.break_down("C_Sign", answer)
        module.control.break_down("C_Login", answer)
        #expect(await code { _ = try await identity.key.signsValidly() } != nil)
        #expect(module.calls("C_Initialize") == starts + 1 && module.control.pins() == 2)
        #expect(try await identity.key.signsValidly())
        #expect(module.calls("C_Initialize") == starts + 1 && module.control.pins() == 3)
    }

    /// A service that starts while the module is broken has no signature before that fails.
    @Test func twoBrokenLoginsAreEnough() async throws {
        let storage = InMemoryStorage()
        // It keeps the module from ending.
        let other = try module.provider(storage: storage)
        let identity = try await other.getCertificate(NoUserInteraction())
        let provider = try module.provider(storage: storage, ["uri": "pkcs11:token=alpha"])
        module.control.log_out(0)
        module.control.break_down("C_Login", CKR_GENERAL_ERROR)
        let pins = module.control.pins()
        for _ in 0..<2 { #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } != nil) }
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
        #expect(module.control.pins() == pins + 3 && module.control.tries_left(0) == 3)
        #expect(try await identity.key.signsValidly())
    }

    @Test func aSessionThatCannotBeOpenedIsOpenedAfterANewStart() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let starts = module.calls("C_Initialize")
        module.control.break_down("C_Sign", CKR_DEVICE_ERROR)
        module.control.break_down("C_OpenSession", CKR_DEVICE_ERROR)
        #expect(try await identity.key.signsValidly())
        #expect(module.calls("C_Initialize") == starts + 1)
    }

    /// SoftHSM fails now and then while another process logs in.
    @Test(arguments: ["C_Sign", "C_Login", "C_OpenSession"]) func oneFailureStartsNothing(function: String) async throws
    {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let starts = module.calls("C_Initialize")
        for _ in 0..<3 {
            module.control.log_out(0)
            module.fail(function, CKR_GENERAL_ERROR)
            // A login that has failed is made by the next operation.
            _ = await code { _ = try await identity.key.signsValidly() }
            #expect(try await identity.key.signsValidly())
        }
        #expect(module.calls("C_Initialize") == starts)
    }

    /// If a new start does not help, the next one is made after a second, then after two, and so on.
    @Test func newStartsHaveABackoff() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let (clock, starts) = (ContinuousClock(), module.calls("C_Initialize"))
        let begin = clock.now
        module.fail("C_Sign", CKR_GENERAL_ERROR, times: .max)
        for _ in 0..<50 { #expect(await code { _ = try await identity.key.signsValidly() } == .unavailable) }
        let added = Int(module.calls("C_Initialize") - starts)
        #expect(added >= 1 && added <= 1 + Int((clock.now - begin).components.seconds) + 1)
        module.fail("C_Sign", CKR_OK, times: 0)
        #expect(try await identity.key.signsValidly())
        // No pause is longer than all before it and a second. It is over once the token has signed after the last one: the next
        // break is a new one.
        let end = clock.now + (clock.now - begin) + .seconds(1)
        while clock.now < end { try await Task.sleep(for: .milliseconds(10)) }
        #expect(try await identity.key.signsValidly())
        module.control.break_down("C_Sign", CKR_GENERAL_ERROR)
        #expect(try await identity.key.signsValidly())
    }

    /// A start helps it for one signature.
    @Test func aTokenThatBreaksAgainAtOnceHasABackoff() async throws {
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let (clock, starts) = (ContinuousClock(), module.calls("C_Initialize"))
        let begin = clock.now
        for _ in 0..<50 {
            module.control.break_down("C_Sign", CKR_GENERAL_ERROR)
            _ = await code { _ = try await identity.key.signsValidly() }
        }
        let added = Int(module.calls("C_Initialize") - starts)
        #expect(added >= 1 && added <= 1 + Int((clock.now - begin).components.seconds) + 1)
    }

    // MARK: Other tokens of the module

    private func withTwoTokens() async throws -> (first: Identity, second: Identity) {
        try module.addBeta()
        let first = try await module.provider(["uri": "pkcs11:token=alpha"]).getCertificate(NoUserInteraction())
        let second = try await module.provider(["uri": "pkcs11:token=beta"]).getCertificate(NoUserInteraction())
        return (first, second)
    }

    @Test func anotherTokensLoginDoesNotHideABreak() async throws {
        let (first, second) = try await withTwoTokens()
        let starts = module.calls("C_Initialize")
        for _ in 0..<2 {
            module.control.log_out(1)
            module.fail("C_Login", CKR_GENERAL_ERROR)
            #expect(await code { _ = try await second.key.signsValidly() } != nil)
            module.control.log_out(0)
            #expect(try await first.key.signsValidly())
        }
        #expect(module.calls("C_Initialize") == starts + 1)
        #expect(try await second.key.signsValidly())
    }

    @Test func anotherTokensSignatureDoesNotEndTheBackoff() async throws {
        let (first, second) = try await withTwoTokens()
        let (clock, starts) = (ContinuousClock(), module.calls("C_Initialize"))
        let begin = clock.now
        module.control.refuse_signatures(1, CKR_GENERAL_ERROR)
        for _ in 0..<50 {
            #expect(await code { _ = try await second.key.signsValidly() } == .unavailable)
            #expect(try await first.key.signsValidly())
        }
        let added = Int(module.calls("C_Initialize") - starts)
        #expect(added >= 1 && added <= 1 + Int((clock.now - begin).components.seconds) + 1)
        module.control.refuse_signatures(1, CKR_OK)
        #expect(try await second.key.signsValidly())
    }

    /// All operations of the module wait for the start.
    @Test func aStartThatWaitsInVainHasABackoff() async throws {
        let (first, second) = try await withTwoTokens()
        module.control.hold("C_Sign")
        async let hanging = second.key.signsValidly()
        try await module.waitUntilHeld(1)
        module.fail("C_SignInit", CKR_GENERAL_ERROR, times: .max)
        var waits: [Bool] = []
        while waits.last != false, waits.count < 10 {
            let start = ContinuousClock.now
            #expect(await code { _ = try await first.key.signsValidly() } == .unavailable)
            waits.append(ContinuousClock.now - start >= .seconds(2))
        }
        #expect(waits.first == true && waits.last == false, "\(waits)")
        module.control.release()
        #expect(try await hanging)
    }

    /// The operation with another token is waited for, and its PIN, once accepted, is sent again.
    @Test func anotherTokenGoesOn() async throws {
        let (first, second) = try await withTwoTokens()
        let starts = module.calls("C_Initialize")
        module.control.break_down("C_Sign", CKR_GENERAL_ERROR)
        async let both = [first.key.signsValidly(), second.key.signsValidly()]
        #expect(try await both == [true, true])
        #expect(module.calls("C_Initialize") == starts + 1)
        #expect(module.control.tries_left(0) == 3 && module.control.tries_left(1) == 3)
    }

    /// Each of them meets the break, and none of them ends with it.
    @Test(arguments: [CKR_GENERAL_ERROR, CKR_SESSION_HANDLE_INVALID]) func manyTasksAreServed(answer: CK_RV)
        async throws
    {
        for _ in 0..<5 {
            let module = try FaultyModule.withIdentity()
            let identity = try await module.provider().getCertificate(NoUserInteraction())
            module.control.break_down("C_Sign", answer)
            try await withThrowingTaskGroup(of: Bool.self) { tasks in
                for _ in 0..<40 { tasks.addTask { try await identity.key.signsValidly() } }
                for try await isValid in tasks { #expect(isValid) }
            }
            #expect(module.control.tries_left(0) == 3)
        }
    }

    /// A call that hangs in the module may be using what a start would take from it.
    @Test func notWhileACallIsInside() async throws {
        try module.addBeta()
        let first = try await module.provider(["uri": "pkcs11:token=alpha"]).getCertificate(NoUserInteraction())
        let provider = try module.provider(["uri": "pkcs11:token=beta"])
        let second = try await provider.getCertificate(NoUserInteraction())
        let starts = module.calls("C_Initialize")
        module.control.hold("C_FindObjectsInit")
        async let hanging = provider.listIdentities()
        try await module.waitUntilHeld(1)
        module.control.break_down("C_SignInit", CKR_GENERAL_ERROR)
        module.control.break_down("C_Login", CKR_GENERAL_ERROR)
        #expect(await code { _ = try await first.key.signsValidly() } != nil)
        #expect(module.calls("C_Initialize") == starts)
        module.control.release()
        _ = await hanging
        _ = second
    }

    /// A person has typed the other token's PIN in at the reader, and is not there now.
    @Test func notForALoginAtAPINPad() async throws {
        try module.addBeta()
        module.control.set_flags(1, CK_FLAGS(CKF_PROTECTED_AUTHENTICATION_PATH), 0)
        let first = try await module.provider(["uri": "pkcs11:token=alpha"]).getCertificate(NoUserInteraction())
        let pad = try module.provider(pin: nil, ["uri": "pkcs11:token=beta"])
        let second = try await pad.getCertificate(Person(""))
        let starts = module.calls("C_Initialize")
        module.fail("C_Sign", CKR_GENERAL_ERROR, times: 2)
        #expect(await code { _ = try await first.key.signsValidly() } == .unavailable)
        #expect(module.calls("C_Initialize") == starts)
        #expect(try await second.key.signsValidly())
        #expect(try await first.key.signsValidly())
    }

    /// Each signature wants the PIN anew, which is sent once in an operation.
    @Test func aLoginForOneSignatureThatIsBrokenIsMadeLater() async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: true)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let starts = module.calls("C_Initialize")
        module.control.break_down("C_Login", CKR_GENERAL_ERROR)
        for _ in 0..<2 { #expect(await code { _ = try await identity.key.signsValidly() } != nil) }
        #expect(module.calls("C_Initialize") == starts + 1)
        #expect(try await identity.key.signsValidly())
        #expect(module.control.tries_left(0) == 3)
    }

    /// A rejected PIN is none of a broken module, and is not sent again after a start.
    @Test func aRejectedPINIsNotSentAgain() async throws {
        let provider = try module.provider(pin: "9999")
        let starts = module.calls("C_Initialize")
        for _ in 0..<4 {
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .pinIncorrect)
        }
        #expect(module.control.pins() == 1 && module.calls("C_Initialize") <= max(starts, 1))
    }
}

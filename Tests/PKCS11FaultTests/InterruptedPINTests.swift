import CP11Kit
import CertificateProviding
import FaultyModuleControl
import Foundation
import PKCS11TokenProvider
import TestSupport
import Testing

/// A process that ends in the middle of a login, with the answer of the token unseen.
///
/// Each process has a copy of the module of its own, and so a token of the same name that has not seen the others.
@Suite(.timeLimit(.minutes(20))) struct InterruptedPINTests {
    private static let concealed = CKF_USER_PIN_COUNT_LOW | CKF_USER_PIN_FINAL_TRY | CKF_USER_PIN_LOCKED
    /// The PIN after a change on the token.
    private static let changedPIN = "5678"

    /// Starts a process that sends its PIN and is killed before the answer.
    /// - Returns: What it leaves behind.
    private func kill(
        pin: String, on storage: InMemoryStorage, losingPower: Bool = false, tokenPIN: String = FaultyModule.pin
    ) async throws -> InMemoryStorage {
        let module = try FaultyModule.withIdentity()
        module.control.set_token(0, "alpha", "0001", tokenPIN)
        module.control.hold("C_Login")
        let provider = try module.provider(pin: pin, storage: storage)
        async let end = code { _ = try await provider.getCertificate(NoUserInteraction()) }
        try await module.waitUntilHeld(1)
        let remains = storage.afterCrash(losingPower: losingPower)
        module.control.release()
        _ = await end
        return remains
    }

    /// Starts a process that runs to its end.
    private func run(
        pin: String, on storage: InMemoryStorage, tokenPIN: String = FaultyModule.pin, flags: UInt = 0,
        daysLater days: Double = 0
    ) async throws -> (code: ProviderError.Code?, pins: UInt32) {
        let module = try FaultyModule.withIdentity()
        module.control.set_token(0, "alpha", "0001", tokenPIN)
        module.control.set_flags(0, CK_FLAGS(flags), 0)
        let provider = try module.provider(pin: pin, storage: storage, now: { Date() + days * 86400 })
        let code = await code { _ = try await provider.getCertificate(NoUserInteraction()) }
        return (code, module.control.pins())
    }

    @Test(arguments: [true, false]) func aRightPINWorksAgain(losingPower: Bool) async throws {
        var storage = try await kill(pin: FaultyModule.pin, on: InMemoryStorage(), losingPower: losingPower)
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (nil, 1))
        // And is not held against it: whatever happens from now on happens for the first time.
        for _ in 0..<3 {
            storage = try await kill(pin: FaultyModule.pin, on: storage, losingPower: losingPower)
            #expect(try await run(pin: FaultyModule.pin, on: storage) == (nil, 1))
        }
    }

    @Test(arguments: [true, false]) func aPINWithoutAnAnswerIsSentTwiceOnTheFirstDayAndThenOnceADay(
        losingPower: Bool
    ) async throws {
        var storage = InMemoryStorage()
        for _ in 0..<2 { storage = try await kill(pin: "9999", on: storage, losingPower: losingPower) }
        for _ in 0..<8 {
            #expect(try await run(pin: "9999", on: storage) == (.operationNotAllowed, 0))
            storage = storage.afterCrash(losingPower: losingPower)
        }
        #expect(try await run(pin: "9999", on: storage, daysLater: 0.9) == (.operationNotAllowed, 0))
        #expect(try await run(pin: "9999", on: storage, daysLater: 1.1) == (.pinIncorrect, 1))
        #expect(try await run(pin: "9999", on: storage, daysLater: 9) == (.pinIncorrect, 0))
        // Another PIN is another matter.
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (nil, 1))
    }

    /// A service comes back by itself.
    @Test func aRightPINWithoutAnAnswerIsTriedEachDay() async throws {
        var storage = InMemoryStorage()
        for _ in 0..<2 { storage = try await kill(pin: FaultyModule.pin, on: storage) }
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (.operationNotAllowed, 0))
        #expect(try await run(pin: FaultyModule.pin, on: storage, daysLater: 1.1) == (nil, 1))
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (nil, 1))
    }

    /// A battery is empty, and the clock begins anew.
    @Test func aClockThatIsSetBackKeepsNoPINForEver() async throws {
        var storage = InMemoryStorage()
        for _ in 0..<2 { storage = try await kill(pin: FaultyModule.pin, on: storage) }
        #expect(try await run(pin: FaultyModule.pin, on: storage, daysLater: -9000) == (.operationNotAllowed, 0))
        #expect(try await run(pin: FaultyModule.pin, on: storage, daysLater: -8998.9) == (nil, 1))
    }

    @Test func aWrongPINThatIsAnsweredTheSecondTimeIsRejected() async throws {
        let storage = try await kill(pin: "9999", on: InMemoryStorage())
        #expect(try await run(pin: "9999", on: storage) == (.pinIncorrect, 1))
        for _ in 0..<8 { #expect(try await run(pin: "9999", on: storage) == (.pinIncorrect, 0)) }
    }

    @Test func aPINThatTheTokenHasCountedAsWrongSinceIsNotSentAgain() async throws {
        let storage = try await kill(pin: FaultyModule.pin, on: InMemoryStorage())
        for _ in 0..<3 {
            let result = try await run(pin: FaultyModule.pin, on: storage, flags: CKF_USER_PIN_COUNT_LOW)
            #expect(result == (.pinIncorrect, 0))
        }
    }

    /// Another login has set the count back.
    @Test func aRightPINWorksAgainOnceTheTokenShowsNoWrongOne() async throws {
        let storage = try await kill(pin: FaultyModule.pin, on: InMemoryStorage())
        let first = try await run(pin: FaultyModule.pin, on: storage, flags: CKF_USER_PIN_COUNT_LOW)
        #expect(first == (.pinIncorrect, 0))
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (nil, 1))
    }

    @Test func aPersonSettlesIt() async throws {
        var storage = InMemoryStorage()
        for _ in 0..<2 { storage = try await kill(pin: FaultyModule.pin, on: storage) }
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (.operationNotAllowed, 0))
        let module = try FaultyModule.withIdentity()
        let attended = try module.provider(pin: nil, storage: storage)
        #expect(try await attended.getCertificate(Person(FaultyModule.pin)).key.signsValidly())
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (nil, 1))
    }

    /// A PIN that was right is tried again after each login without an answer, a little later each time.
    @Test func aPINThatWasChangedIsSentUntilItIsAnswered() async throws {
        var storage = InMemoryStorage()
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (nil, 1))
        for _ in 0..<2 { storage = try await kill(pin: FaultyModule.pin, on: storage, tokenPIN: Self.changedPIN) }
        for pins: UInt32 in [1, 0, 0, 0] {
            let result = try await run(pin: FaultyModule.pin, on: storage, tokenPIN: Self.changedPIN)
            #expect(result == (.pinIncorrect, pins))
        }
    }

    /// It may be another PIN that the token has counted. The answer says it, and the last try is a person's.
    @Test(arguments: [CKF_USER_PIN_COUNT_LOW, CKF_USER_PIN_COUNT_LOW | CKF_USER_PIN_FINAL_TRY])
    func aPINThatWasRightIsTriedOnceMoreWhereTheTokenShowsAWrongOne(flags: UInt) async throws {
        var storage = InMemoryStorage()
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (nil, 1))
        storage = try await kill(pin: FaultyModule.pin, on: storage, tokenPIN: Self.changedPIN)
        guard flags == CKF_USER_PIN_COUNT_LOW else {
            let result = try await run(pin: FaultyModule.pin, on: storage, tokenPIN: Self.changedPIN, flags: flags)
            #expect(result == (.pinFinalTry, 0))
            return
        }
        for pins: UInt32 in [1, 0, 0] {
            let result = try await run(pin: FaultyModule.pin, on: storage, tokenPIN: Self.changedPIN, flags: flags)
            #expect(result == (.pinIncorrect, pins))
        }
    }

    /// A passing fault, and a person who mistypes their PIN elsewhere.
    @Test func aPINThatIsRightOutlivesAWrongOneOfAnother() async throws {
        let storage = InMemoryStorage()
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (nil, 1))
        let later = try await kill(pin: FaultyModule.pin, on: storage)
        #expect(try await run(pin: FaultyModule.pin, on: later, flags: CKF_USER_PIN_COUNT_LOW) == (nil, 1))
        #expect(try await run(pin: FaultyModule.pin, on: later) == (nil, 1))
    }

    /// The power goes each time: only the token knows that something was sent.
    @Test func aTokenThatCountsIsEnoughWhereNothingWasFlushed() async throws {
        var storage = InMemoryStorage()
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (nil, 1))
        storage = try await kill(pin: FaultyModule.pin, on: storage, losingPower: true, tokenPIN: Self.changedPIN)
        for pins: UInt32 in [1, 0, 0, 0] {
            let result = try await run(
                pin: FaultyModule.pin, on: storage, tokenPIN: Self.changedPIN, flags: CKF_USER_PIN_COUNT_LOW)
            #expect(result == (.pinIncorrect, pins))
        }
    }

    @Test func aRightPINNeedsNoDisk() async throws {
        let storage = InMemoryStorage()
        #expect(try await run(pin: FaultyModule.pin, on: storage) == (nil, 1))
        storage.fail(with: ProviderError(.storeWriteFailed, "The disk is full."), whenReading: false)
        let unchanged = try FaultyModule.withIdentity()
        // They stay: one that goes closes its sessions some time later, by numbers that this module has given out anew.
        let providers = try (0..<3).map { _ in try unchanged.provider(storage: storage) }
        for provider in providers {
            unchanged.control.insert(0, 0)
            let list = await provider.listIdentities()
            #expect(list.failures.map(\.description) == [])
            #expect(list.identities.count == 1)
        }
        #expect(unchanged.control.pins() == 3)
        withExtendedLifetime(providers) {}
        // Changed on the token: that it is wrong cannot be written down, and it is not sent again all the same.
        let module = try FaultyModule.withIdentity()
        module.control.set_token(0, "alpha", "0001", Self.changedPIN)
        module.control.set_flags(0, 0, CK_FLAGS(Self.concealed))
        let provider = try module.provider(storage: storage)
        for _ in 0..<3 {
            let failures = await provider.listIdentities().failures
            #expect(failures.map(\.code) == [.pinIncorrect], "\(failures)")
        }
        for _ in 0..<3 {
            let restarted = try module.provider(storage: storage)
            #expect(await restarted.listIdentities().failures.map(\.code) == [.storeWriteFailed])
        }
        #expect(module.control.pins() == 1)
    }
}

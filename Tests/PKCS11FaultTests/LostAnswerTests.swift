import CP11Kit
import CertificateProviding
import FaultyModuleControl
import Foundation
import PKCS11TokenProvider
import Synchronization
import TestSupport
import Testing

/// The token has looked at the PIN, and what it found is lost on the way. Its flags conceal what it counts.
@Suite struct LostAnswerTests {
    private static let concealed = CK_FLAGS(CKF_USER_PIN_COUNT_LOW | CKF_USER_PIN_FINAL_TRY)

    @Test(arguments: [
        CKR_DEVICE_ERROR, CKR_SESSION_CLOSED, CKR_SESSION_HANDLE_INVALID, CKR_TOKEN_NOT_RECOGNIZED,
        CKR_FUNCTION_REJECTED, CKR_GENERAL_ERROR, 0x8000_0001,
    ])
    func aWrongPINIsSentTwiceAtMost(answer: CK_RV) async throws {
        let module = try FaultyModule.withIdentity()
        module.control.set_flags(0, 0, Self.concealed)
        module.control.lose("C_Login", 10, answer)
        let storage = InMemoryStorage()
        for _ in 0..<10 {
            let provider = try module.provider(pin: "9999", storage: storage)
            #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } != nil)
        }
        #expect(module.control.tries_left(0) == 1)
    }

    /// The last look says which it is: tpm2-pkcs11 may call a PIN incorrect while its TPM dies.
    @Test(
        "A PIN that a failing device calls incorrect counts as not answered; that of a token that is gone is rejected",
        arguments: [CKR_DEVICE_ERROR, CKR_DEVICE_REMOVED, CKR_TOKEN_NOT_PRESENT, CKR_GENERAL_ERROR, CKR_OK])
    func anIncorrectPINOfAFailingDevice(look: CK_RV) async throws {
        let module = try FaultyModule.withIdentity()
        let storage = InMemoryStorage()
        module.control.set_flags(0, 0, Self.concealed)
        module.control.hold_answer("C_Login")
        let first = try module.provider(pin: "9999", storage: storage)
        async let failure = code { _ = try await first.getCertificate(NoUserInteraction()) }
        try await module.waitUntilHeld(1)
        if look != CKR_OK { module.fail("C_GetTokenInfo", look, times: 1000) }
        module.control.release()
        #expect(await failure == (look == CKR_DEVICE_ERROR ? .unavailable : .pinIncorrect))
        module.fail("C_GetTokenInfo", look, times: 0)
        let next = try module.provider(pin: "9999", storage: storage)
        #expect(await code { _ = try await next.getCertificate(NoUserInteraction()) } == .pinIncorrect)
        #expect(module.control.pins() == (look == CKR_DEVICE_ERROR ? 2 : 1))
    }

    /// It may have been changed on the token, or the device fails.
    @Test(arguments: [true, false]) func aPINThatWasRightIsTriedLaterEachTime(isSameProcess: Bool) async throws {
        let module = try FaultyModule.withIdentity()
        let storage = InMemoryStorage()
        let days = Atomic(0)
        let start = Date(timeIntervalSince1970: 2_000_000_000)
        let now = { @Sendable in start + TimeInterval(days.load(ordering: .relaxed)) * 86400 }
        let hasty = ["timeout": "1"]
        let first = try module.provider(storage: storage, now: now, hasty)
        let identity = try await inTime { try await first.getCertificate(NoUserInteraction()) }
        module.control.set_token(0, "alpha", "0001", "5678")
        module.control.set_flags(0, 0, Self.concealed)
        module.control.log_out(0)
        module.control.lose("C_Login", 10, CKR_DEVICE_ERROR)
        func attempt() async throws -> ProviderError.Code? {
            let provider = try module.provider(storage: storage, now: now, hasty)
            return await code {
                if isSameProcess {
                    _ = try await identity.key.signsValidly()
                } else {
                    _ = try await provider.getCertificate(NoUserInteraction())
                }
            }
        }
        for (day, left) in [(0, 2), (1, 1)] {
            days.store(day, ordering: .relaxed)
            // On a busy host, a hasty attempt may end before it sends the PIN.
            for _ in 0..<100 where module.control.tries_left(0) > left { _ = try await attempt() }
            #expect(module.control.tries_left(0) == left)
            for _ in 0..<5 {
                let code = try await attempt()
                #expect(code == .operationNotAllowed || code == .timedOut, "\(String(describing: code))")
            }
            #expect(module.control.tries_left(0) == left)
        }
        // Until a person says what it is.
        module.control.lose("C_Login", 0, CKR_OK)
        let attended = try module.provider(pin: nil, storage: storage)
        #expect(try await attended.getCertificate(Person("5678")).key.signsValidly())
    }

    /// Neither two faults in a row nor many more make a person necessary.
    @Test(arguments: [
        CKR_DEVICE_ERROR, CKR_GENERAL_ERROR, CKR_FUNCTION_FAILED, CKR_HOST_MEMORY, CKR_DEVICE_REMOVED, 0x8000_0001,
    ])
    func aDeviceThatWasBrokenForAWhileIsUsedAgain(answer: CK_RV) async throws {
        for wasAccepted in [true, false] {
            let module = try FaultyModule.withIdentity()
            module.control.set_flags(0, 0, Self.concealed)
            let storage = InMemoryStorage()
            if wasAccepted { _ = try await module.provider(storage: storage).getCertificate(NoUserInteraction()) }
            module.fail("C_Login", answer, times: 1000)
            for _ in 0..<12 {
                let provider = try module.provider(storage: storage, ["timeout": "1"])
                #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } != nil)
            }
            module.fail("C_Login", answer, times: 0)
            let later = Date() + (wasAccepted ? 10 : 86400)
            let provider = try module.provider(storage: storage, now: { later })
            #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
            // And nothing is left of it.
            module.fail("C_Login", answer)
            let next = try module.provider(storage: storage, now: { later })
            _ = await code { _ = try await next.getCertificate(NoUserInteraction()) }
            #expect(try await next.getCertificate(NoUserInteraction()).key.signsValidly())
        }
    }

    /// One signature sends the PIN once.
    @Test("A lost answer to a login for a signature costs one try")
    func oneForASignatureCostsOneTry() async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: true)
        let now = Date(timeIntervalSince1970: 2_000_000_000)
        let provider = try module.provider(now: { now }, ["timeout": "1"])
        let identity = try await inTime { try await provider.getCertificate(NoUserInteraction()) }
        module.control.set_token(0, "alpha", "0001", "5678")
        module.control.set_flags(0, 0, Self.concealed)
        module.control.lose("C_Login", 10, CKR_DEVICE_ERROR)
        // On a busy host, a hasty attempt may end before it sends the PIN.
        for _ in 0..<100 where module.control.tries_left(0) > 2 {
            #expect(await code { _ = try await identity.key.signsValidly() } != nil)
        }
        #expect(module.control.tries_left(0) == 2)
        for _ in 0..<3 {
            let code = await code { _ = try await identity.key.signsValidly() }
            #expect(code == .operationNotAllowed || code == .timedOut, "\(String(describing: code))")
        }
        #expect(module.control.tries_left(0) == 2)
    }

    /// And not the token's last.
    @Test func theLastTryIsNotForASignature() async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: true)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.set_flags(0, CK_FLAGS(CKF_USER_PIN_FINAL_TRY), 0)
        let sent = module.control.pins()
        #expect(await code { _ = try await identity.key.signsValidly() } == .pinFinalTry)
        #expect(module.control.pins() == sent)
    }

    /// The key asks for the PIN, and a login is not permitted: another part of the process has logged in.
    @Test func withoutAPermissionNothingIsSentForASignature() async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: true)
        let other = try await module.provider().getCertificate(NoUserInteraction())
        let provider = try module.provider(["login": "never"])
        let sent = module.control.pins()
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .interactionRequired)
        #expect(module.control.pins() == sent)
        #expect(try await other.key.signsValidly())
    }

    /// A pipe says the PIN once, and a failure in between does not lose it.
    @Test("A PIN from a pipe is remembered over a failure")
    func whatAPipeHasSaidIsKept() async throws {
        let directory = try TemporaryDirectory()
        let pipe = directory["pin"]
        try #require(mkfifo(pipe, 0o600) == 0)
        // Open for both, which on Linux needs no reader yet; the written bytes stay until they are read.
        let writer = open(pipe, O_RDWR | O_NONBLOCK | O_CLOEXEC)
        try #require(write(writer, FaultyModule.pin, FaultyModule.pin.utf8.count) == FaultyModule.pin.utf8.count)
        // A reader reads to the end, which comes when the last writer closes. Closing before the PIN is read would lose it.
        Thread.detachNewThread {
            var descriptor = pollfd(fd: writer, events: Int16(POLLIN), revents: 0)
            while poll(&descriptor, 1, 0) == 1 { usleep(1000) }
            close(writer)
        }
        let module = try FaultyModule.withIdentity()
        module.fail("C_Login", CKR_FUNCTION_CANCELED)
        let provider = try module.provider(pin: nil, ["pin-source": "file:\(pipe)"])
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .userCancelled)
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
    }
}

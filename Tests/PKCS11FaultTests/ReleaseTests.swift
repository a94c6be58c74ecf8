import CP11Kit
import CertificateProviding
import FaultyModuleControl
import Foundation
import Synchronization
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// Unused sessions and modules are given back to the module, which may hang in that as in every other call.
@Suite(.timeLimit(.minutes(20))) struct ReleaseTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    private static let isWithin = ProcessInfo.processInfo.environment["CERTPROV_TEST_END"] != nil

    /// Uses a token, and lets go of all of it on the thread that this returns to.
    private func use(_ module: FaultyModule) async throws {
        let provider = try module.provider()
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
    }

    /// The module is given up two seconds after the last use has gone: where the machine has no time for the test until
    /// then, it begins anew.
    @Test(.disabled(if: isWithin), arguments: ["C_CloseSession", "C_Finalize"])
    func theLastUseReturnsWhileTheModuleHangs(function: String) async throws {
        for _ in 0..<10 {
            let module = try FaultyModule.withIdentity()
            defer { module.control.release() }
            module.control.hold(function)
            let hasReturned = DispatchSemaphore(value: 0)
            async let isInTime = BlockingExecutor.threads(maximum: 1).run {
                let isHeld = module.control.wait_held(1) == 1
                let isInTime = hasReturned.wait(timeout: .now() + 1) == .success
                module.control.release()
                return isHeld && isInTime
            }
            try await use(module)
            hasReturned.signal()
            guard try await isInTime else { continue }
            await module.waitUntilFinalized()
            return #expect(module.control.open_sessions() == 0)
        }
        Issue.record("the last use waits for \(function)")
    }

    /// An object that goes with the last reference, on any thread, is closed like this.
    @Test(.disabled(if: isWithin)) func aCleanupDoesNotHoldUpItsThread() {
        let (hasReturned, isDone) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
        let outcome = Mutex(DispatchTimeoutResult.timedOut)
        DeferredCleanup().run {
            outcome.withLock { $0 = hasReturned.wait(timeout: .now() + 600) }
            isDone.signal()
        }
        hasReturned.signal()
        #expect(isDone.wait(timeout: .now() + 1200) == .success)
        #expect(outcome.withLock(\.self) == .success)
    }

    @Test(.disabled(if: isWithin)) func aShutdownClosesEverything() async throws {
        let provider = try module.provider()
        let key = try await provider.getCertificate(NoUserInteraction()).key
        #expect(try await key.signsValidly())
        await provider.shutdown()
        await module.waitUntilFinalized()
        #expect(module.control.open_sessions() == 0)
        #expect(module.calls("C_Logout") == 1 && module.calls("C_Finalize") == 1)
        // For good, and without a crash.
        #expect(await code { _ = try await key.signsValidly() } == .operationNotAllowed)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .operationNotAllowed)
        #expect(await code { _ = try provider.getStoredCertificate() } == .operationNotAllowed)
        await provider.shutdown()
        #expect(try await module.provider().getCertificate(NoUserInteraction()).key.signsValidly())
    }

    @Test(.disabled(if: isWithin)) func aShutdownTakesNothingFromAnotherProvider() async throws {
        let (provider, other) = (try module.provider(), try module.provider())
        let key = try await other.getCertificate(NoUserInteraction()).key
        _ = try await provider.getCertificate(NoUserInteraction())
        let logins = module.calls("C_Login")
        await provider.shutdown()
        #expect(module.calls("C_Logout") == 0 && module.calls("C_Finalize") == 0)
        #expect(try await key.signsValidly())
        #expect(module.calls("C_Login") == logins)
        await other.shutdown()
        await module.waitUntilFinalized()
        #expect(module.calls("C_Finalize") == 1 && module.control.open_sessions() == 0)
    }

    /// Such as of a configuration that is read again.
    @Test(.disabled(if: isWithin)) func aProviderThatIsMadeDuringAShutdownHasAModule() async throws {
        defer { module.control.release() }
        let provider = try module.provider()
        let key = try await provider.getCertificate(NoUserInteraction()).key
        module.control.hold("C_Sign")
        async let end = code { _ = try await key.signsValidly() }
        try await module.waitUntilHeld(1)
        async let shutdown: Void = provider.shutdown()
        // The old one waits for its signature.
        var next = try module.provider(["login": "never"])
        while await !next.listIdentities().failures.isEmpty { next = try module.provider(["login": "never"]) }
        module.control.release()
        _ = await (end, shutdown)
        #expect(try await module.provider().getCertificate(NoUserInteraction()).key.signsValidly())
    }

    /// The login is the application's: a library that uses the module beside this one has it too.
    @Test(.disabled(if: isWithin)) func aShutdownTakesNoLoginFromAnotherPartOfTheProcess() async throws {
        module.control.number_slots(7)
        let provider = try module.provider()
        _ = try await provider.getCertificate(NoUserInteraction())
        let functions = try #require(p11_kit_module_load(module.path, 0))
        defer { p11_kit_module_release(functions) }
        try #require(p11_kit_module_initialize(functions) == CKR_OK)
        defer { _ = p11_kit_module_finalize(functions) }
        var session: CK_SESSION_HANDLE = 0
        try #require(functions.pointee.C_OpenSession?(7, CK_FLAGS(CKF_SERIAL_SESSION), nil, nil, &session) == CKR_OK)
        await provider.shutdown()
        #expect(module.calls("C_Logout") == 0)
        var info = CK_SESSION_INFO()
        #expect(functions.pointee.C_GetSessionInfo?(session, &info) == CKR_OK)
        #expect(info.state == CKS_RO_USER_FUNCTIONS)
    }

    /// A signature that does not end is left behind: the shutdown does not wait for it. Otherwise p11-kit would count it as one
    /// more user of the library, which no later start would start again.
    @Test("A module that was left behind ends before the next start", .disabled(if: isWithin))
    func aModuleThatWasLeftBehindEndsLater() async throws {
        defer { module.control.release() }
        let provider = try module.provider()
        let key = try await provider.getCertificate(NoUserInteraction()).key
        module.control.hold("C_Sign")
        async let end = code { _ = try await key.signsValidly() }
        try await module.waitUntilHeld(1)
        await provider.shutdown()
        #expect(module.calls("C_Finalize") == 0)
        module.control.release()
        _ = await end
        // A busy host may have no time for it at once.
        for _ in 0..<100 where module.calls("C_Finalize") == 0 {
            let next = try module.provider()
            #expect(try await next.getCertificate(NoUserInteraction()).key.signsValidly())
            await next.shutdown()
        }
        #expect(module.calls("C_Finalize") > 0)
        await module.waitUntilFinalized()
    }

    /// The next one may come before everything is given back, and there is one session.
    @Test(.disabled(if: isWithin)) func theNextProviderGetsTheSession() async throws {
        module.control.set_sessions(0, 1, 1)
        for _ in 0..<20 { try await use(module) }
    }

    /// A start that waits for an operation waits beside the end of the module, and may come after it.
    @Test("A module that has ended is not started again", .disabled(if: isWithin))
    func aModuleThatHasEndedIsNotStartedAgain() async throws {
        let threads = BlockingExecutor.threads(maximum: 4)
        for _ in 0..<30 {
            let module = try FaultyModule.withIdentity()
            let uri = try PKCS11URI("pkcs11:")
            let reference = try #require(
                ModuleLoader.modules(for: uri, path: module.path, timeout: .seconds(600)).first)
            let started = try #require(try reference.module(for: uri))
            let (hasBegun, canEnd) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
            async let operation: Void = threads.run { () throws(ProviderError) in
                try started.operate {
                    hasBegun.signal()
                    canEnd.wait()
                }
            }
            try await threads.run { hasBegun.wait() }
            async let start: Void = threads.run {
                let error = CryptokiError(function: "C_GetSlotList", code: CKR_CRYPTOKI_NOT_INITIALIZED)
                try? started.restart(after: error, in: started.generation)
            }
            // Both may also be in time.
            try await Task.sleep(for: .milliseconds(2))
            async let end: Void = threads.run { reference.leave(by: .now + .seconds(600)) }
            try await Task.sleep(for: .milliseconds(2))
            canEnd.signal()
            _ = try await (operation, start, end)
            #expect(module.control.is_in_use() == 0)
        }
    }

    /// A library is not torn down in the middle of being finalised, which takes a while.
    @Test(.disabled(if: isWithin)) func theProcessEndsAfterThat() async throws {
        let directory = try TemporaryDirectory()
        try await Subprocess.runTests(
            ["aTokenIsUsed"], of: "ReleaseTests",
            with: ["CERTPROV_TEST_END=1", "FAULTY_MODULE_FINALIZED=\(directory["finalized"])"])
        #expect(try directory.read("finalized").count == 1)
    }

    @Test(.enabled(if: isWithin)) func aTokenIsUsed() async throws {
        try await use(module)
        // The end of that is seen by no test, but by the process.
        await module.waitUntilFinalized()
    }
}

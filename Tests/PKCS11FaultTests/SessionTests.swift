import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

@Suite(.timeLimit(.minutes(20))) struct SessionTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    private func sign(_ count: Int, with key: any IdentityKey) async throws -> Int {
        try await withThrowingTaskGroup(of: Bool.self) { tasks in
            for _ in 0..<count { tasks.addTask { try await key.signsValidly() } }
            return try await tasks.reduce(0) { $0 + ($1 ? 1 : 0) }
        }
    }

    /// 0 and "not said" are what modules without a maximum report.
    @Test(arguments: [(CK_ULONG(1), CK_ULONG(1)), (2, 2), (3, 3), (0, 64), (.max, 64)])
    func theMaximumIsKept(reported: CK_ULONG, available: CK_ULONG) async throws {
        module.control.set_sessions(0, reported, available)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        let openings = module.calls("C_OpenSession")
        #expect(try await sign(200, with: identity.key) == 200)
        #expect(module.control.most_sessions() <= min(available, 17))
        #expect(module.control.shared_uses() == 0)
        // The sessions stay open, and no impossible one was asked for.
        #expect(module.calls("C_OpenSession") - openings <= 16)
    }

    /// The module reports no maximum; other programs have most of what there is.
    @Test(arguments: [CK_ULONG(1), 2, 3]) func otherProgramsHoldTheRest(available: CK_ULONG) async throws {
        module.control.set_sessions(0, 0, available)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.control.hold("C_Sign")
        async let signatures = sign(200, with: identity.key)
        try await module.waitUntilHeld(max(1, UInt32(available) - 1))
        module.control.release()
        #expect(try await signatures == 200)
        #expect(module.control.most_sessions() == available)
        #expect(module.control.shared_uses() == 0)
    }

    /// The other programs are gone: until that is seen, nothing but the time that it takes is lost.
    @Test func aShortagePasses() async throws {
        module.control.set_sessions(0, 0, 2)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        #expect(try await sign(50, with: identity.key) == 50)
        #expect(module.control.most_sessions() == 2)
        module.control.set_sessions(0, 0, 64)
        while module.control.most_sessions() <= 2 { #expect(try await sign(50, with: identity.key) == 50) }
        #expect(module.control.shared_uses() == 0)
    }

    @Test func noSessionAtAll() async throws {
        module.control.set_sessions(0, 0, 0)
        let provider = try module.provider()
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .unavailable)
        #expect(module.control.pins() == 0)
        module.control.set_sessions(0, 0, 2)
        #expect(try await provider.getCertificate(NoUserInteraction()).key.signsValidly())
    }

    /// With one session, an operation that fails must not leave it stuck.
    @Test(arguments: [CKR_GENERAL_ERROR, CKR_DEVICE_ERROR, CKR_SESSION_HANDLE_INVALID])
    func theOnlySessionSurvivesAFailure(result: CK_RV) async throws {
        module.control.set_sessions(0, 1, 2)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        module.fail("C_Sign", result)
        _ = await code { _ = try await identity.key.signsValidly() }
        #expect(try await sign(20, with: identity.key) == 20)
    }

    /// A call outlasts the wait of a logout, and then works.
    @Test func theSessionOfALateCallIsClosed() async throws {
        let provider = try module.provider()
        let identity = try await provider.getCertificate(NoUserInteraction())
        module.control.hold("C_Sign")
        async let late = identity.key.signsValidly()
        try await module.waitUntilHeld(1)
        try provider.deleteStoredCertificate()
        await module.waitUntilOpen(1)
        module.control.release()
        #expect(try await late)
        await module.waitUntilOpen(0)
    }

    /// Another caller gets a device error between two calls of the signature, which ends the connection of both. With a key that
    /// asks for its PIN each time, the next call is a login, which is not made.
    @Test(arguments: [false, true]) func theSessionOfAnInterruptedSignatureIsClosed(asksEachTime: Bool) async throws {
        let module = try FaultyModule.withIdentity(asksEachTime: asksEachTime)
        let provider = try module.provider()
        let identity = try await provider.getCertificate(NoUserInteraction())
        module.control.hold("C_SignInit")
        async let late = identity.key.signsValidly()
        try await module.waitUntilHeld(1)
        module.fail("C_FindObjects", CKR_DEVICE_ERROR)
        async let other = provider.getCertificate(NoUserInteraction())
        // On a new connection.
        try await module.waitUntilHeld(2)
        module.control.release()
        #expect(try await late)
        _ = try await other
        try provider.deleteStoredCertificate()
        await module.waitUntilOpen(0)
    }

    @Test("The sessions of calls that end after their callers have given up are closed")
    func theSessionsOfAbandonedCallsAreClosed() async throws {
        defer { module.control.release() }
        let provider = try module.provider(["timeout": "3"])
        let identity = try await inTime { try await provider.getCertificate(NoUserInteraction()) }
        module.fail("C_Sign", CKR_DEVICE_ERROR, times: .max)
        module.control.hold("C_Sign")
        // When the second round ends, nothing waits for the first one any more.
        for _ in 0..<2 {
            await withTaskGroup(of: ProviderError.Code?.self) { tasks in
                for _ in 0..<16 { tasks.addTask { await code { _ = try await identity.key.signsValidly() } } }
                for await code in tasks { #expect(code == .timedOut) }
            }
        }
        module.control.release()
        try await closeAll(provider, module)
    }

    /// Logs out until no session is open: a late call may have made a new connection.
    private func closeAll(_ provider: PKCS11TokenProvider, _ module: FaultyModule) async throws {
        let end = ContinuousClock.now + .seconds(600)
        while module.control.open_sessions() > 0 {
            try #require(ContinuousClock.now < end, "\(module.control.open_sessions()) sessions are not closed")
            try? provider.deleteStoredCertificate()
            try await Task.sleep(for: .milliseconds(1))
        }
    }

    /// A thread that waits for a session while another one fails to open is not forgotten.
    @Test func aFailedOpeningWakesWhoWaits() async throws {
        module.control.set_sessions(0, 2, 2)
        let identity = try await module.provider().getCertificate(NoUserInteraction())
        // Neither is an error after which the token is connected to anew.
        module.fail("C_Sign", CKR_DATA_INVALID)
        module.fail("C_GetSessionInfo", CKR_DATA_INVALID, times: 2)
        #expect(await code { _ = try await identity.key.signsValidly() } == .unavailable)
        module.fail("C_OpenSession", CKR_DEVICE_MEMORY)
        let codes = await withTaskGroup(of: ProviderError.Code?.self) { tasks in
            for _ in 0..<8 { tasks.addTask { await code { _ = try await identity.key.signsValidly() } } }
            return await tasks.reduce(into: []) { $0.append($1) }
        }
        #expect(codes.count { $0 == .unavailable } == 1)
        #expect(codes.count { $0 == nil } == 7)
    }
}

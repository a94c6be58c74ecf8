import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// Programs that log in to one token take turns.
@Suite(.timeLimit(.minutes(20))) struct TurnTests {
    /// Ten programs at one card wait for each other longer than the card takes for one of them.
    @Test("The time of other logins does not count against 'timeout'")
    func othersTimeIsNotTheCallers() async throws {
        let storage = InMemoryStorage()
        // Each program has a copy of the module. The token is the same.
        let (slow, fast) = (try FaultyModule.withIdentity(), try FaultyModule.withIdentity())
        slow.control.hold("C_Login")
        async let first = slow.provider(storage: storage).getCertificate(NoUserInteraction())
        try await slow.waitUntilHeld(1)
        let (clock, timeout) = (ContinuousClock(), Duration.seconds(3))
        let start = clock.now
        // A person is asked about nothing, and no login is waited for but this one.
        let provider = try fast.provider(pin: "5678", storage: storage, ["timeout": "3", "uri": "pkcs11:token=alpha"])
        fast.control.set_token(0, "alpha", "0001", "5678")
        async let second = provider.getCertificate(NoUserInteraction())
        while clock.now < start + timeout * 2 { try await Task.sleep(for: .milliseconds(10)) }
        #expect(fast.control.pins() == 0)
        slow.control.release()
        #expect(try await first.key.signsValidly())
        _ = try await second
        #expect(fast.control.pins() == 1)
    }

    /// OpenSC reads a card for seconds, in which other processes wait inside of it.
    @Test(
        "Programs that read a card take turns, and that time does not count against 'timeout'",
        arguments: [true, false]
    )
    func aCardIsReadInTurns(isBlocking: Bool) async throws {
        let storage = InMemoryStorage()
        let (slow, fast) = (
            try FaultyModule.withIdentity(named: "opensc-pkcs11.so"),
            try FaultyModule.withIdentity(named: "opensc-pkcs11.so")
        )
        slow.control.hold("C_GetTokenInfo")
        async let first = slow.provider(storage: storage).getCertificate(NoUserInteraction())
        try await slow.waitUntilHeld(1)
        let (clock, timeout) = (ContinuousClock(), Duration.seconds(2))
        let start = clock.now
        let provider = try fast.provider(storage: storage, ["timeout": "2", "uri": "pkcs11:token=alpha"])
        let threads = BlockingExecutor.threads(maximum: 1)
        async let second: Identity? =
            isBlocking
            ? threads.run { () throws(ProviderError) in try provider.getStoredCertificate() }
            : provider.getCertificate(NoUserInteraction())
        while clock.now < start + timeout * 2 { try await Task.sleep(for: .milliseconds(10)) }
        #expect(fast.calls("C_GetTokenInfo") == 0)
        slow.control.release()
        #expect(try await first.key.signsValidly())
        #expect(try await second?.key.signsValidly() == true)
    }

    @Test("A library that hangs while it reads a card keeps the turn no longer than its caller waits")
    func aTurnEndsWithItsCaller() async throws {
        let storage = InMemoryStorage()
        let (hanging, other) = (
            try FaultyModule.withIdentity(named: "opensc-pkcs11.so"),
            try FaultyModule.withIdentity(named: "opensc-pkcs11.so")
        )
        hanging.control.hold("C_GetTokenInfo")
        defer { hanging.control.release() }
        let hasty = try hanging.provider(storage: storage, ["timeout": "1"])
        #expect(await code { _ = try await hasty.getCertificate(NoUserInteraction()) } == .timedOut)
        let provider = try other.provider(storage: storage, ["timeout": "300", "uri": "pkcs11:token=alpha"])
        #expect(try await inTime { try await provider.getCertificate(NoUserInteraction()) }.key.signsValidly())
    }

    /// One that hangs does not keep the others for good.
    @Test func aTurnThatDoesNotEndIsGivenUp() async throws {
        let storage = InMemoryStorage()
        let (slow, fast) = (try FaultyModule.withIdentity(), try FaultyModule.withIdentity())
        slow.control.hold("C_Login")
        defer { slow.control.release() }
        async let first = slow.provider(storage: storage).getCertificate(NoUserInteraction())
        try await slow.waitUntilHeld(1)
        let provider = try fast.provider(storage: storage, ["timeout": "1", "uri": "pkcs11:token=alpha"])
        let failure = await code { _ = try await provider.getCertificate(NoUserInteraction()) }
        #expect(failure == .operationNotAllowed || failure == .timedOut, "\(String(describing: failure))")
        #expect(fast.control.pins() == 0)
        slow.control.release()
        _ = try await first
    }
}

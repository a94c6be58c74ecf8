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

    /// The one that blocks its caller ends while the one that suspends it still waits.
    @Test("A call that blocks waits for its turn no longer than for 'timeout'")
    func aCallThatBlocksDoesNotWaitLonger() async throws {
        let storage = InMemoryStorage()
        let slow = try FaultyModule.withIdentity()
        slow.control.hold("C_Login")
        defer { slow.control.release() }
        async let first = slow.provider(storage: storage).getCertificate(NoUserInteraction())
        try await slow.waitUntilHeld(1)
        let (clock, timeout) = (ContinuousClock(), Duration.seconds(3))
        let settings = ["timeout": "3", "uri": "pkcs11:token=alpha"]
        let (suspending, blocking) = (try FaultyModule.withIdentity(), try FaultyModule.withIdentity())
        async let second = suspending.provider(storage: storage, settings).getCertificate(NoUserInteraction())
        while suspending.calls("C_OpenSession") == 0 { try await Task.sleep(for: .milliseconds(1)) }
        let start = clock.now
        while clock.now < start + timeout { try await Task.sleep(for: .milliseconds(10)) }
        let provider = try blocking.provider(storage: storage, settings)
        let failure = await code { _ = try provider.getStoredCertificate() }
        #expect(failure == .operationNotAllowed || failure == .timedOut, "\(String(describing: failure))")
        #expect(blocking.control.pins() == 0)
        slow.control.release()
        #expect(try await first.key.signsValidly())
        #expect(try await second.key.signsValidly())
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

import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// Two providers of one process use a module, which gives the handles of sessions away again that have ended with a
/// token.
@Suite(.timeLimit(.minutes(20))) struct RecycledHandleTests {
    private let module: FaultyModule

    init() throws { module = try FaultyModule.withIdentity() }

    private func replug() {
        module.control.insert(0, -1)
        module.control.insert(0, 0)
    }

    /// One of them has connected anew, and is in the middle of a signature in a session whose number the other one had.
    @Test func aSignatureMeetsNoOtherProvidersSession() async throws {
        let stale = try await module.provider().getCertificate(NoUserInteraction())
        let other = try await module.provider().getCertificate(NoUserInteraction())
        replug()
        #expect(try await other.key.signsValidly())
        module.control.hold("C_Sign")
        async let first = other.key.signsValidly()
        try await module.waitUntilHeld(1)
        let sessions = module.control.open_sessions()
        async let second = stale.key.signsValidly()
        try await module.waitUntilHeld(2)
        #expect(module.control.open_sessions() == sessions + 2)
        module.control.release()
        #expect(try await first)
        #expect(try await second)
        #expect(module.control.shared_uses() == 0)
    }

    @Test func aLogoutIsNoOtherProviders() async throws {
        let stale = try module.provider()
        _ = try await stale.getCertificate(NoUserInteraction())
        let other = try await module.provider().getCertificate(NoUserInteraction())
        replug()
        #expect(try await other.key.signsValidly())
        let (sessions, logins) = (module.control.open_sessions(), module.calls("C_Login"))
        try stale.deleteStoredCertificate()
        #expect(module.calls("C_Logout") == 0 && module.control.open_sessions() == sessions)
        #expect(try await other.key.signsValidly())
        #expect(module.calls("C_Login") == logins)
    }

    /// The token is back where it was, and the number of its session is that of one with another token by now.
    @Test func aPINIsSentToNoOtherToken() async throws {
        try module.addBeta(pin: "5678", isInserted: false)
        let stale = try module.provider(pin: nil, ["uri": "pkcs11:token=alpha"])
        _ = await stale.listIdentities()
        replug()
        module.control.insert(1, 1)
        // The user is not logged in there, where a wrong PIN would count.
        let other = try module.provider(pin: nil, ["uri": "pkcs11:token=beta"])
        _ = await other.listIdentities()
        _ = await code { _ = try await stale.getCertificate(Person(FaultyModule.pin)) }
        #expect(try await stale.getCertificate(Person(FaultyModule.pin)).key.signsValidly())
        #expect(module.control.tries_left(0) == 3 && module.control.tries_left(1) == 3)
        #expect(try await other.getCertificate(Person("5678")).key.signsValidly())
    }

    /// In the token's slot is another one that shows its keys without a login, under the same handles. A signature in a session
    /// that is opened only now has been verified before.
    @Test func aFurtherSessionIsWithNoOtherToken() async throws {
        try module.addBeta(pin: "5678", isInserted: false)
        module.control.set_flags(1, 0, CK_FLAGS(CKF_LOGIN_REQUIRED))
        module.control.set_visibility(1, 1, 1)
        let key = try await module.provider(["uri": "pkcs11:token=alpha"]).getCertificate(NoUserInteraction()).key
        #expect(try await key.signsValidly())
        module.control.hold("C_Sign")
        async let first = code { try #require(await key.signsValidly()) }
        try await module.waitUntilHeld(1)
        module.control.insert(0, 1)
        let second = await code { try #require(await key.signsValidly()) }
        module.control.release()
        #expect(await first == .tokenNotPresent)
        #expect(second == .tokenNotPresent)
        module.control.insert(0, 0)
        #expect(try await key.signsValidly())
    }

    /// The token is reset while many sign for both.
    @Test(arguments: 0..<5) func pulledOutUnderLoad(_: Int) async throws {
        // Without a PIN: one that meets a removal is not known to be right, and after some of those is not sent again.
        module.control.set_flags(0, 0, CK_FLAGS(CKF_LOGIN_REQUIRED))
        module.control.set_visibility(0, 1, 1)
        var keys: [any IdentityKey] = []
        for _ in 0..<2 { keys.append(try await module.provider().getCertificate(NoUserInteraction()).key) }
        try await module.pullOut(whileSigningWith: keys)
        for key in keys { #expect(try await key.signsValidly()) }
        #expect(module.control.tries_left(0) == 3 && module.control.shared_uses() == 0)
    }
}

import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// The choice is forgotten first, then the user is logged out: a module may hang in the middle of a logout.
@Suite(.timeLimit(.minutes(20))) struct DeletionTests {
    private let module: FaultyModule
    private let storage = InMemoryStorage()

    init() throws { module = try FaultyModule.withIdentity() }

    @Test func aLogoutThatHangsBringsNothingBack() async throws {
        let provider = try module.provider(storage: storage, ["timeout": "2"])
        _ = try await inTime { try await provider.getCertificate(NoUserInteraction()) }
        #expect(try storage.entryNames().count == 1)
        module.control.hold("C_Logout")
        defer { module.control.release() }
        #expect(await code { try provider.deleteStoredCertificate() } == .timedOut)
        #expect(try storage.entryNames().isEmpty)
    }

    /// The module's message helps no user, since the sessions are closed anyway.
    @Test func aLogoutThatFailsIsNone() async throws {
        let provider = try module.provider(storage: storage)
        _ = try await provider.getCertificate(NoUserInteraction())
        module.fail("C_Logout", CKR_GENERAL_ERROR)
        try provider.deleteStoredCertificate()
        #expect(try storage.entryNames().isEmpty)
        await module.waitUntilOpen(0)
    }

    @Test func aChoiceThatCannotBeForgottenIsAnError() async throws {
        let provider = try module.provider(storage: storage)
        _ = try await provider.getCertificate(NoUserInteraction())
        storage.fail(with: ProviderError(.storeWriteFailed, "The disk is full."), whenReading: false)
        #expect(await code { try provider.deleteStoredCertificate() } == .storeWriteFailed)
        #expect(module.calls("C_Logout") == 0)
        storage.fail(with: nil)
        #expect(try storage.entryNames().count == 1 && provider.getStoredCertificate() != nil)
        try provider.deleteStoredCertificate()
        #expect(try storage.entryNames().isEmpty && module.calls("C_Logout") == 1)
    }
}

import CP11Kit
import CertificateProviding
import FaultyModuleControl
import PKCS11TokenProvider
import TestSupport
import Testing

/// Another part of this process logs out, which hides private keys: none of them is gone.
@Suite(.timeLimit(.minutes(20))) struct LogoutTests {
    private let module: FaultyModule

    init() throws { module = try .withIdentity() }

    @Test func aKeyIsFound() async throws {
        let provider = try module.provider(["uri": "pkcs11:token=alpha;id=%01"])
        let identity = try await provider.getCertificate(NoUserInteraction())
        module.control.log_out(0)
        #expect(try await provider.key(for: identity.key.publicKey, NoUserInteraction()) != nil)
        module.control.log_out(0)
        #expect(try provider.getStoredCertificate()?.certificate == identity.certificate)
    }

    @Test func aKeyIsDiscarded() async throws {
        let provider = try module.provider(["uri": "pkcs11:token=alpha;id=%01"])
        let identity = try await provider.getCertificate(NoUserInteraction())
        module.control.log_out(0)
        try await provider.discard(identity.key, NoUserInteraction())
        #expect(try await provider.key(for: identity.key.publicKey, NoUserInteraction()) == nil)
    }

    /// With the smallest number of sessions, of which none is lost with the hidden objects.
    @Test(arguments: [CK_ULONG(1), 2]) func aKeyIsDiscardedWithFewSessions(maximum: CK_ULONG) async throws {
        module.control.set_sessions(0, maximum, maximum)
        let provider = try module.provider(["uri": "pkcs11:token=alpha;id=%01"])
        let identity = try await provider.getCertificate(NoUserInteraction())
        let leaf = try FaultyModule.authority.get().certify(identity.key.publicKey.derRepresentation, as: "next")
        module.control.log_out(0)
        _ = try await provider.store(certificateChain: [leaf], for: identity.key, NoUserInteraction())
        module.control.log_out(0)
        try await provider.discard(identity.key, NoUserInteraction())
        await module.waitUntilOpen(1)
    }

    /// The next key gets the handle of the one that was destroyed.
    @Test func aDiscardedKeySignsNothing() async throws {
        let provider = try module.provider()
        let identity = try await provider.getCertificate(NoUserInteraction())
        try await provider.discard(identity.key, NoUserInteraction())
        try module.addKey(of: FaultyModule.authority.get().issue("next"), to: 0, id: 2)
        #expect(await code { _ = try await identity.key.signsValidly() } == .notFound)
    }

    /// Between the search for the key and its destruction.
    @Test func aKeyThatIsHiddenIsNotDestroyed() async throws {
        let provider = try module.provider(["uri": "pkcs11:token=alpha;id=%01"])
        let identity = try await provider.getCertificate(NoUserInteraction())
        module.control.hold("C_DestroyObject")
        async let discarded: Void = provider.discard(identity.key, NoUserInteraction())
        try await module.waitUntilHeld(1)
        module.control.log_out(0)
        module.control.release()
        try await discarded
        #expect(try await provider.key(for: identity.key.publicKey, NoUserInteraction()) == nil)
    }

    @Test func anIdentityIsDeleted() async throws {
        let provider = try module.provider(["delete-objects": "true"])
        let identity = try await provider.getCertificate(NoUserInteraction())
        module.control.log_out(0)
        try provider.deleteStoredCertificate()
        let other = try module.provider(["uri": "pkcs11:token=alpha;id=%01"])
        #expect(try await other.key(for: identity.key.publicKey, NoUserInteraction()) == nil)
        #expect(await other.listIdentities().identities.isEmpty)
    }
}

import CP11Kit
import CertificateProviding
import FaultyModuleControl
import TestSupport
import Testing

@testable import PKCS11TokenProvider

/// Sessions for writing are sessions like the others, of which a token has no more than it says.
@Suite(.timeLimit(.minutes(20))) struct WritingTests {
    private let module: FaultyModule
    private let provider: PKCS11TokenProvider
    private let publicKey: PublicKeyInfo

    /// A key that has no certificate yet.
    init() throws {
        let identity = try FaultyModule.authority.get().issue("client")
        publicKey = identity.key.publicKey
        module = try .withToken { try $0.addKey(of: identity, to: 0) }
        provider = try module.provider(["uri": "pkcs11:token=alpha;id=%01"])
    }

    private func key() async throws -> any IdentityKey {
        try #require(try await provider.key(for: publicKey, NoUserInteraction()))
    }

    private func store(_ name: String, for key: any IdentityKey) async throws {
        let leaf = try FaultyModule.authority.get().certify(publicKey.derRepresentation, as: name)
        _ = try await provider.store(certificateChain: [leaf], for: key, NoUserInteraction())
    }

    /// The module would give any number of sessions.
    @Test(arguments: [CK_ULONG(1), 2, 3]) func theMaximumIsKeptWhileWriting(maximum: CK_ULONG) async throws {
        module.control.set_sessions(0, maximum, 64)
        let key = try await key()
        try await withThrowingTaskGroup(of: Bool.self) { tasks in
            for _ in 0..<100 { tasks.addTask { try await key.signsValidly() } }
            for number in 0..<4 {
                tasks.addTask {
                    try await store("client\(number)", for: key)
                    return true
                }
            }
            for try await isValid in tasks { #expect(isValid) }
        }
        #expect(module.calls("C_CreateObject") == 4)
        #expect(module.control.most_sessions() == maximum && module.control.shared_uses() == 0)
    }

    @Test("A write waits for a free session")
    func whoWritesWaitsForASession() async throws {
        module.control.set_sessions(0, 3, 3)
        let key = try #require(try await key() as? TokenKey)
        module.control.hold("C_Sign")
        async let first = key.signsValidly()
        async let second = key.signsValidly()
        try await module.waitUntilHeld(2)
        let looks = module.calls("C_GetTokenInfo")
        let leaf = try FaultyModule.authority.get().certify(publicKey.derRepresentation, as: "client")
        // Without the probe before it, which would be held as well.
        async let written = key.token.calls.run("writing") { () throws(ProviderError) in
            try key.token.keys.store([leaf], for: key)
        }
        // It looks at the token just before.
        while module.calls("C_GetTokenInfo") == looks { try await Task.sleep(for: .milliseconds(1)) }
        module.control.release()
        #expect(try await [first, second] == [true, true])
        #expect(try await written == [leaf])
        #expect(module.calls("C_CreateObject") == 1 && module.control.most_sessions() == 3)
    }

    /// Other programs have all but one of what the module does not say it has.
    @Test func withoutASessionNothingIsWritten() async throws {
        module.control.set_sessions(0, 0, 1)
        let key = try await key()
        #expect(await code { try await store("client", for: key) } == .unavailable)
        #expect(try await key.signsValidly())
        module.control.set_sessions(0, 0, 2)
        try await store("client", for: key)
    }

    /// The only session there is, of a token that is protected.
    @Test func aProtectedTokenIsRead() async throws {
        module.control.set_sessions(0, 1, 1)
        module.control.set_flags(0, CK_FLAGS(CKF_WRITE_PROTECTED), 0)
        module.fail("C_OpenSession", CKR_TOKEN_WRITE_PROTECTED)
        let key = try await key()
        #expect(try await key.signsValidly())
        #expect(await code { try await store("client", for: key) } == .storeWriteFailed)
    }
}

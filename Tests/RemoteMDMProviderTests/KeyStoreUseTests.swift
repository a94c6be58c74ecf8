import CertificateProviding
import Enrolment
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// The keys that an enrolment leaves in the key store `store:`.
@Suite(.timeLimit(.minutes(20))) struct KeyStoreUseTests {
    private let storage = InMemoryStorage()

    @Test func deletionLeavesNoKey() async throws {
        let server = try ESTResponder(.basic)
        let provider = try server.provider(storage: storage)
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(try await provider.plan.keyStore.list().count == 1)
        try provider.deleteStoredCertificate()
        #expect(try await provider.plan.keyStore.list().isEmpty)
        try provider.deleteStoredCertificate()
    }

    @Test func aServersKeyReplacesTheRequestsKey() async throws {
        let server = try ESTResponder(.basic)
        for _ in 0..<2 {
            let provider = try server.provider(storage: storage, ["server-keygen": "true", "key-type": "p256"])
            let identity = try await provider.getCertificate(NoUserInteraction())
            let keys = try await provider.plan.keyStore.list()
            #expect(keys.count == 1 && keys[0].reference.publicKey == identity.certificate.publicKey)
        }
    }

    /// A key that is gone is replaced by the next enrolment, and said to be gone until then.
    @Test("A missing private key is reported, and the next enrolment replaces the key")
    func aKeyThatIsGoneIsCalledThat() async throws {
        let server = try ESTResponder(.basic)
        let provider = try server.provider(storage: storage)
        let identity = try await provider.getCertificate(NoUserInteraction())
        try provider.plan.keyStore.destroyStored(provider.plan.keyStore.reference(to: identity.key))
        #expect {
            _ = try provider.getStoredCertificate()
        } throws: {
            guard let error = $0 as? ProviderError else { return false }
            return error.code == .notFound && error.message.contains("certprov fetch --force")
        }
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(try provider.getStoredCertificate() != nil)
    }

    /// A person who refuses everything is not asked, and an unknown server hears nothing.
    @Test("A user who cannot be asked is not asked, and no request is sent")
    func whoCannotBeAskedIsNotAsked() async throws {
        struct Refusing: UserInteraction {
            var canAsk: Bool { false }
            func requestSecret(_ prompt: String) async throws(ProviderError) -> SecretBytes {
                throw ProviderError(.interactionRequired, "No.")
            }
            func confirm(_ question: String) async throws(ProviderError) -> Bool {
                throw ProviderError(.interactionRequired, "No.")
            }
        }
        let server = try ESTResponder(.basic)
        let provider = try server.provider(storage: storage, ["trust-anchors": ""])
        await #expect {
            _ = try await provider.getCertificate(Refusing())
        } throws: { ($0 as? ProviderError)?.code == .configurationInvalid }
        #expect(server.requests.isEmpty)
    }
}

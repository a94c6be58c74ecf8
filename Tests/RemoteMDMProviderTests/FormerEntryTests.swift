import CertificateProviding
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// Identities and pending requests whose private key rests in their own entry, as they were stored before there were key
/// stores.
@Suite(.timeLimit(.minutes(20))) struct FormerEntryTests {
    private let storage = InMemoryStorage()

    /// Stores an identity in the former form, and returns its provider.
    private func enrolled(_ server: ESTResponder) async throws -> RemoteMDMProvider {
        let provider = try server.provider(storage: storage)
        let identity = try await provider.getCertificate(NoUserInteraction())
        let exporter = try #require(identity.key.exporter)
        let key = try exporter.pkcs8Representation()
        let name = provider.settings.entryName
        var entry = try #require(try storage.entry(named: name))
        #expect(entry.privateKey == nil && entry.attributes["key"]?.hasPrefix("store:") == true)
        entry.privateKey = key
        entry.attributes["key"] = nil
        try storage.setEntry(entry, named: name)
        let stored = KeyReference(publicKey: identity.key.publicKey, uri: try #require(identity.key.uri))
        try provider.settings.keyStore.destroyStored(stored)
        return try server.provider(storage: storage)
    }

    @Test("An identity stored in the former format is used and listed")
    func isUsedAndListed() async throws {
        let server = try ESTResponder(.basic)
        let provider = try await enrolled(server)
        let identity = try #require(try provider.getStoredCertificate())
        try await identity.verifyPossession()
        #expect(identity.key.location == .store)
        let list = await provider.listIdentities()
        #expect(list.failures.isEmpty && list.identities.map(\.keyLocation) == [.store])
        #expect(list.identities.map(\.isKeyExportable) == [true] && list.identities[0].keyURI == nil)
    }

    @Test("Renewing an identity in the former format puts the new key into the key store")
    func isRenewedIntoTheKeyStore() async throws {
        let server = try ESTResponder(.basic)
        let provider = try await enrolled(server)
        let old = try #require(try provider.getStoredCertificate())
        let new = try await provider.getCertificate(NoUserInteraction())
        #expect(!new.certificate.publicKey.isSameKey(as: old.certificate.publicKey))
        #expect(try server.provider(storage: storage).getStoredCertificate()?.certificate == new.certificate)
        let entry = try #require(try storage.entry(named: provider.settings.entryName))
        #expect(entry.privateKey == nil && entry.attributes["key"] == new.key.uri)
        // One key after each renewal.
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(try await provider.settings.keyStore.list().count == 1)
    }

    @Test("An identity stored in the former format can be deleted")
    func isDeleted() async throws {
        let provider = try await enrolled(try ESTResponder(.basic))
        #expect(try await provider.announcedDeletions().isEmpty)
        try provider.deleteStoredCertificate()
        #expect(try provider.getStoredCertificate() == nil)
    }

    /// The server has the request; its key is in the record.
    @Test("A pending request stored in the former format continues with its key")
    func aPendingRequestIsAskedForWithItsKey() async throws {
        let server = try ESTResponder(.basic, .init(pending: 1, retryAfter: "3600"))
        let provider = try server.provider(storage: storage)
        await #expect(throws: CertificateProviderError.self) {
            _ = try await provider.getCertificate(NoUserInteraction())
        }
        let name = provider.settings.recordName
        let record = try #require(try storage.record(named: name))
        let pending = try PendingEnrolment(record)
        let reference = try #require(pending.key.reference)
        let key = try #require(try provider.settings.keyStore.storedKey(for: reference))
        let exporter = try #require(key.exporter)
        var former = PendingEnrolment(key: .sealed(try exporter.pkcs8Representation()))
        (former.csr, former.isUndecided) = (pending.csr, pending.isUndecided)
        try storage.updateRecord(named: name) { _ in former.encoded }
        try provider.settings.keyStore.destroyStored(reference)
        let identity = try await server.provider(storage: storage).getCertificate(NoUserInteraction())
        #expect(identity.certificate.publicKey.isSameKey(as: key.publicKey))
        #expect(Set(server.requests.compactMap(\.csrSHA256)).count == 1)
        #expect(try server.provider(storage: storage).getStoredCertificate()?.certificate == identity.certificate)
    }
}

/// The keys that an enrolment leaves in the key store `store:`.
@Suite(.timeLimit(.minutes(20))) struct KeyStoreUseTests {
    private let storage = InMemoryStorage()

    @Test func deletionLeavesNoKey() async throws {
        let server = try ESTResponder(.basic)
        let provider = try server.provider(storage: storage)
        _ = try await provider.getCertificate(NoUserInteraction())
        #expect(try await provider.settings.keyStore.list().count == 1)
        try provider.deleteStoredCertificate()
        #expect(try await provider.settings.keyStore.list().isEmpty)
        try provider.deleteStoredCertificate()
    }

    @Test func aServersKeyReplacesTheRequestsKey() async throws {
        let server = try ESTResponder(.basic)
        for _ in 0..<2 {
            let provider = try server.provider(storage: storage, ["server-keygen": "true", "key-type": "p256"])
            let identity = try await provider.getCertificate(NoUserInteraction())
            let keys = try await provider.settings.keyStore.list()
            #expect(keys.count == 1 && keys[0].reference.publicKey.isSameKey(as: identity.certificate.publicKey))
        }
    }

    /// A key that is gone is replaced by the next enrolment, and said to be gone until then.
    @Test("A missing private key is reported, and the next enrolment replaces the key")
    func aKeyThatIsGoneIsCalledThat() async throws {
        let server = try ESTResponder(.basic)
        let provider = try server.provider(storage: storage)
        let identity = try await provider.getCertificate(NoUserInteraction())
        try provider.settings.keyStore.destroyStored(provider.settings.keyStore.reference(to: identity.key))
        #expect {
            _ = try provider.getStoredCertificate()
        } throws: {
            guard let error = $0 as? CertificateProviderError else { return false }
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
            func requestSecret(_ prompt: String) async throws(CertificateProviderError) -> SecretBytes {
                throw CertificateProviderError(.interactionRequired, "No.")
            }
            func confirm(_ question: String) async throws(CertificateProviderError) -> Bool {
                throw CertificateProviderError(.interactionRequired, "No.")
            }
        }
        let server = try ESTResponder(.basic)
        let provider = try server.provider(storage: storage, ["trust-anchors": ""])
        await #expect {
            _ = try await provider.getCertificate(Refusing())
        } throws: { ($0 as? CertificateProviderError)?.code == .configurationInvalid }
        #expect(server.requests.isEmpty)
    }
}

import CertificateProviding
import Enrolment
import Synchronization
import TestSupport
import Testing

/// The stored state of an enrolment: the identity, its key, and a pending request.
@Suite struct StoredStateTests {
    private let person = NoUserInteraction()
    private let vault = (ExampleKeyStore.descriptor(ProviderID("vault")), InMemoryStorage() as any IdentityStorage)

    @Test("A pending request in a key store that is no longer there is made anew in the configured one")
    func aLostKeyStoreDoesNotBlockAnEnrolment() async throws {
        let first = try Host(keyStores: [vault])
        first.server.state.withLock { $0.looks = 1000 }
        #expect(await code { _ = try await first.provider(key: "vault:").getCertificate(person) } == .pending)
        let second = try Host(server: first.server, memory: first.memory)
        first.server.state.withLock { $0.looks = 0 }
        let identity = try await second.provider().getCertificate(person)
        #expect(second.log.warnings.contains { $0.contains("a key is left in a key store that cannot be used") })
        #expect(identity.key.location == .store)
        #expect(try await second.keys() == [identity.key.uri])
    }

    @Test("A listing says that the stored key is not in the configured key store, until it is")
    func aListingSaysWhereTheKeyIs() async throws {
        let host = try Host(keyStores: [vault])
        func isSaid(of key: String) async throws -> Bool {
            try await host.provider(key: key).listIdentities().remarks.contains {
                $0.contains("not in the key store of 'key'")
            }
        }
        _ = try await host.provider().getCertificate(person)
        #expect(try await !isSaid(of: "store:"))
        #expect(try await isSaid(of: "vault:"))
        _ = try await host.provider(key: "vault:").getCertificate(person)
        #expect(try await !isSaid(of: "vault:"))
    }

    @Test("A listing says that a changed type of key counts at the next renewal")
    func aListingSaysThatTheTypeHasChanged() async throws {
        let host = try Host()
        func isSaid(_ type: KeyType?) async throws -> Bool {
            try await host.provider { $0.keyType = type }.listIdentities().remarks.contains {
                $0.contains("'key-type' is \(type?.rawValue ?? "")")
            }
        }
        _ = try await host.provider { $0.keyType = .p256 }.getCertificate(person)
        #expect(try await isSaid(.p384))
        #expect(try await !isSaid(.p256))
        #expect(try await !isSaid(nil))
        _ = try await host.provider { $0.keyType = .p384 }.getCertificate(person)
        #expect(try await !isSaid(.p384))
    }

    @Test("A changed type of key replaces the key of a pending request")
    func anotherConfigurationWantsAnotherKey() async throws {
        let host = try Host()
        host.server.state.withLock { $0.looks = 1000 }
        #expect(await code { _ = try await host.provider { $0.keyType = .p256 }.getCertificate(person) } == .pending)
        host.server.state.withLock { $0.looks = 0 }
        let identity = try await host.provider { $0.keyType = .p384 }.getCertificate(person)
        #expect(identity.certificate.publicKey.curve == "P-384")
        #expect(try await host.keys() == [identity.key.uri])
    }

    @Test("A missing private key is reported, and the next enrolment replaces the key")
    func aMissingKey() async throws {
        let host = try Host()
        let provider = try host.provider()
        let identity = try await provider.getCertificate(person)
        try provider.plan.keyStore.destroyStored(provider.plan.keyStore.reference(to: identity.key))
        let error = #expect(throws: ProviderError.self) { try provider.getStoredCertificate() }
        #expect(error?.code == .notFound && error?.message.contains("certprov fetch --force") == true)
        _ = try await provider.getCertificate(person)
        #expect(try provider.getStoredCertificate() != nil)
    }

    @Test("An identity with an unreadable enrolment record can be deleted")
    func anUnreadableRecord() async throws {
        let host = try Host()
        let provider = try host.provider()
        _ = try await provider.getCertificate(person)
        try host.memory.updateRecord(named: provider.recordName) { _ in SecretBytes(copying: [2, 1, 2]) }
        #expect(await code { _ = try await provider.getCertificate(person) } == .storeReadFailed)
        #expect(try await provider.announcedDeletions().isEmpty && host.log.warnings.isEmpty)
        try provider.deleteStoredCertificate()
        #expect(host.log.warnings.count == 1 && host.log.warnings[0].contains("its key may be left in a key store"))
        #expect(try provider.getStoredCertificate() == nil)
        _ = try await provider.getCertificate(person)
    }

    @Test("An identity is not deleted if its entry cannot be read, unless that is damaged", arguments: [false, true])
    func anUnreadEntryIsNotDeleted(isDamaged: Bool) async throws {
        let memory = InMemoryStorage()
        _ = try await Host(memory: memory).provider().getCertificate(person)
        let failure = ProviderError(.storeReadFailed, "Input/output error.", reason: isDamaged ? .damaged : nil)
        let host = try Host(
            memory: memory,
            storage: HookedStorage(memory) { call, _ throws(ProviderError) in
                if case .entry = call { throw failure }
            })
        let provider = try host.provider()
        if isDamaged {
            try provider.deleteStoredCertificate()
        } else {
            #expect(throws: ProviderError.self) { try provider.deleteStoredCertificate() }
            await #expect(throws: ProviderError.self) { try await provider.announcedDeletions() }
        }
        #expect(try memory.entryNames().isEmpty == isDamaged && host.log.warnings.isEmpty != isDamaged)
        // The record of keys names the key that a damaged entry does not.
        #expect(try await host.keys().isEmpty == isDamaged)
    }

    @Test("A pending enrolment of a newer version is not deleted")
    func aNewerVersion() async throws {
        let host = try Host()
        let provider = try host.provider()
        _ = try await provider.getCertificate(person)
        let newer = SecretBytes(utf8: #"{"version":2}"#)
        try host.memory.updateRecord(named: provider.recordName) { _ in newer }
        let error = #expect(throws: ProviderError.self) { try provider.deleteStoredCertificate() }
        #expect(error?.code == .storeReadFailed && error?.message.contains("newer certprov") == true)
        #expect(try host.memory.record(named: provider.recordName) == newer)
        #expect(try provider.getStoredCertificate() != nil)
    }
}

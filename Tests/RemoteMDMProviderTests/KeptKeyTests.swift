import CertificateProviding
import Enrolment
import Foundation
import Glibc
import IdentityStore
import TestSupport
import Testing

@testable import ProviderTransport
@testable import RemoteMDMProvider

/// How long the key of a request stays: as long as there may be an answer to it, and no longer.
@Suite(.timeLimit(.minutes(20))) struct KeptKeyTests {
    /// In front of the server, or with the password, something is wrong for a moment.
    @Test(
        "A pending request survives temporary failures unchanged",
        arguments: [
            ("fault-status-404", [:], ProviderError.Code.configurationInvalid),
            ("fault-status-403", [:], .rejected), ("fault-wrong-type", [:], .protocolError),
            ("fault-cut-50", [:], .protocolError), ("", ["password-source": "env:TOKEN"], .rejected),
            ("", ["trust-anchors": "/nowhere/ca.pem"], .fileNotFound),
        ])
    func aPendingRequestOutlastsTrouble(
        label: String, settings: [String: String], expected: ProviderError.Code
    ) async throws {
        let server = try ESTResponder(.basic, .init(pending: 1, retryAfter: "3600"))
        let storage = OneIdentity()
        let first = try server.provider(storage: storage)
        #expect(await code { _ = try await first.getCertificate(NoUserInteraction()) } == .pending)
        let troubled = try server.provider(storage: storage, label: label, settings)
        let failure = await code { _ = try await troubled.getCertificate(NoUserInteraction()) }
        #expect(failure == expected || (label.contains("cut") && failure == .unavailable))
        try server.verify(try await server.provider(storage: storage).getCertificate(NoUserInteraction()))
        let requests = server.requests.compactMap(\.csrSHA256)
        #expect(requests.count >= 2 && Set(requests).count == 1)
    }

    /// Asking again would have the same answer for ever.
    @Test(arguments: [
        SCEPResponder.Behaviour(failInfo: "2"), SCEPResponder.Behaviour(statuses: ["PKIOperation": 400]),
    ])
    func aRequestThatIsRefusedIsMadeAnew(refusal: SCEPResponder.Behaviour) async throws {
        let storage = InMemoryStorage()
        let server = try await SCEPHTTPServer(SCEPResponder(.init(pending: 99)))
        #expect(await code { _ = try await provider(server, storage).getCertificate(NoUserInteraction()) } == .pending)
        let name = try provider(server, storage).recordName
        #expect(try storage.record(named: name) != nil)
        server.replaceResponder(by: try SCEPResponder(refusal))
        #expect(await code { _ = try await provider(server, storage).getCertificate(NoUserInteraction()) } == .rejected)
        #expect(try storage.record(named: name) == nil)
        server.replaceResponder(by: try SCEPResponder())
        _ = try await provider(server, storage).getCertificate(NoUserInteraction())
    }

    @Test("A pending request in a key store that is no longer there is made anew in the configured one")
    func aLostKeyStoreDoesNotBlockAnEnrolment() async throws {
        let server = try ESTResponder(.basic, .init(pending: 1, retryAfter: "3600"))
        let storage = InMemoryStorage()
        let vault = ExampleKeyStore.descriptor(ProviderID("vault"))
        let first = try server.provider(
            storage: storage, ["key": "vault:"], keyStores: [(vault, InMemoryStorage())])
        #expect(await code { _ = try await first.getCertificate(NoUserInteraction()) } == .pending)
        let log = TestLog()
        let second = try server.provider(storage: storage, log: log)
        // The server takes this for another request.
        #expect(await code { _ = try await second.getCertificate(NoUserInteraction()) } == .pending)
        #expect(log.warnings.contains { $0.contains("a key is left in a key store that cannot be used") })
        let identity = try await second.getCertificate(NoUserInteraction())
        #expect(identity.key.location == .store)
        #expect(try await second.keys.store.list().count == 1)
    }

    @Test("A listing says that the stored key is not in the configured key store, until it is")
    func aListingSaysWhereTheKeyIs() async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        let keyStores = [(ExampleKeyStore.descriptor(ProviderID("vault")), InMemoryStorage() as any IdentityStorage)]
        let first = try server.provider(storage: storage, keyStores: keyStores)
        func isSaid(by provider: EnrollingProvider) async -> Bool {
            await provider.listIdentities().remarks.contains { $0.contains("not in the key store of 'key'") }
        }
        _ = try await first.getCertificate(NoUserInteraction())
        #expect(await !isSaid(by: first))
        let second = try server.provider(storage: storage, ["key": "vault:"], keyStores: keyStores)
        #expect(await isSaid(by: second))
        _ = try await second.getCertificate(NoUserInteraction())
        #expect(await !isSaid(by: second))
    }

    @Test("A changed 'key-type' replaces the key of a pending request")
    func anotherConfigurationWantsAnotherKey() async throws {
        let server = try ESTResponder(.basic, .init(pending: 1, retryAfter: "3600"))
        let storage = InMemoryStorage()
        let first = try server.provider(storage: storage, ["key-type": "p256"])
        #expect(await code { _ = try await first.getCertificate(NoUserInteraction()) } == .pending)
        // The request with the first key has no waiting client now; the server takes this for another request.
        let second = try server.provider(storage: storage, ["key-type": "p384"])
        #expect(await code { _ = try await second.getCertificate(NoUserInteraction()) } == .pending)
        #expect(try await second.getCertificate(NoUserInteraction()).certificate.publicKey.curve == "P-384")
    }

    @Test("An identity with an unreadable enrolment record can be deleted")
    func whatCannotBeReadIsDeletedAllTheSame() async throws {
        let server = try ESTResponder(.basic)
        let storage = OneIdentity()
        let log = TestLog()
        let provider = try server.provider(storage: storage, log: log)
        _ = try await provider.getCertificate(NoUserInteraction())
        try storage.updateRecord(named: "enrolment-") { _ in SecretBytes(copying: [2, 1, 2]) }
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .storeReadFailed)
        #expect(try await provider.announcedDeletions().isEmpty && log.warnings.isEmpty)
        try provider.deleteStoredCertificate()
        #expect(log.warnings.count == 1 && log.warnings[0].contains("its key may be left in a key store"))
        #expect(try provider.getStoredCertificate() == nil)
        _ = try await provider.getCertificate(NoUserInteraction())
    }

    @Test(
        "What is damaged in the store can be deleted",
        arguments: ["records/mdm/enrolment-", "records/mdm/authorities-", "identities/mdm/", "store.key"])
    func whatIsDamagedIsDeleted(file: String) async throws {
        let server = try ESTResponder(.basic)
        let directory = try TemporaryDirectory()
        let storage = IdentityStore(path: directory["store"]).storage(for: RemoteMDMProvider.id)
        _ = try await server.provider(storage: storage).getCertificate(NoUserInteraction())
        let first = try server.provider(storage: storage)
        for name in [first.recordName, first.settings.authoritiesRecordName] {
            try storage.updateRecord(named: name) { _ in SecretBytes(copying: [2, 1, 2]) }
        }
        if file == "store.key" {
            try #require(unlink(directory["store/store.key"]) == 0)
        } else {
            let name = try #require(directory.contents().first { $0.hasPrefix("store/\(file)") && !$0.hasSuffix("/") })
            try directory.write(Array("garbage".utf8), to: name)
        }
        let later = IdentityStore(path: directory["store"]).storage(for: RemoteMDMProvider.id)
        let provider = try server.provider(storage: later)
        try provider.deleteStoredCertificate()
        #expect(try provider.getStoredCertificate() == nil)
        let left = directory.contents().filter { $0.contains("/mdm/") && !$0.contains("/.") && !$0.contains("/keys-") }
        #expect(left.isEmpty, "\(left)")
        try server.verify(try await provider.getCertificate(NoUserInteraction()))
    }

    @Test("An identity is not deleted if its entry cannot be read, unless that is damaged", arguments: [false, true])
    func anUnreadEntryIsNotDeleted(isDamaged: Bool) async throws {
        let server = try ESTResponder(.basic)
        let memory = InMemoryStorage()
        _ = try await server.provider(storage: memory).getCertificate(NoUserInteraction())
        let failure = ProviderError(
            .storeReadFailed, "Input/output error.", reason: isDamaged ? .damaged : nil)
        let log = TestLog()
        let unreadable = HookedStorage(memory) { call, _ throws(ProviderError) in
            if case .entry = call { throw failure }
        }
        let provider = try server.provider(storage: unreadable, log: log)
        if isDamaged {
            try provider.deleteStoredCertificate()
        } else {
            #expect(throws: ProviderError.self) { try provider.deleteStoredCertificate() }
            await #expect(throws: ProviderError.self) { try await provider.announcedDeletions() }
        }
        #expect(try memory.entryNames().isEmpty == isDamaged && log.warnings.isEmpty != isDamaged)
        // The record of keys names the key that a damaged entry does not.
        #expect(try await provider.keys.store.list().isEmpty == isDamaged)
    }

    @Test func aPendingEnrolmentOfANewerVersionIsNotDeleted() async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        let provider = try server.provider(storage: storage)
        _ = try await provider.getCertificate(NoUserInteraction())
        let newer = SecretBytes(utf8: #"{"version":2}"#)
        try storage.updateRecord(named: provider.recordName) { _ in newer }
        let error = #expect(throws: ProviderError.self) { try provider.deleteStoredCertificate() }
        #expect(error?.code == .storeReadFailed && error?.message.contains("newer certprov") == true)
        #expect(try storage.record(named: provider.recordName) == newer)
        #expect(try provider.getStoredCertificate() != nil)
    }

    @Test func aPasswordIsNotForAServerWithoutTLS() {
        let parameters = [
            "protocol": "scep", "url": "http://127.0.0.1:1/scep", "username": "user", "subject": "CN=client",
        ]
        #expect {
            _ = try RemoteMDMProvider.make(
                environment: .testing(), parameters: ProviderParameters(parameters.mapValues { .init($0) }))
        } throws: {
            ($0 as? ProviderError)?.code == .configurationInvalid
        }
    }

    /// The server takes the connection and says nothing.
    @Test func aConnectionThatIsBeingMadeCanBeCancelled() async throws {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        defer { close(listener) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        let port =
            withUnsafeMutablePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { raw in
                    bind(listener, raw, size) == 0 && listen(listener, 8) == 0 && getsockname(listener, raw, &size) == 0
                }
            } ? UInt16(bigEndian: address.sin_port) : 0
        try #require(port != 0)
        let folder = try TemporaryDirectory()
        try folder.write(try CertifiedKey.authority.get().certificate.pemRepresentation.utf8, to: "ca.pem")
        let parameters = [
            "protocol": "est", "url": "https://127.0.0.1:\(port)", "trust-anchors": folder["ca.pem"],
            "subject": "CN=client", "timeout": "3600",
        ]
        let provider = try RemoteMDMProvider.make(
            environment: .testing(), parameters: ProviderParameters(parameters.mapValues { .init($0) }))
        let task = Task { await code { _ = try await provider.getCertificate(NoUserInteraction()) } }
        // The connection is there when the kernel has it.
        var waiting = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
        while poll(&waiting, 1, 0) == 0 { try await Task.sleep(for: .milliseconds(1)) }
        task.cancel()
        #expect(await task.value == .userCancelled)
    }

    private func provider(_ server: SCEPHTTPServer, _ storage: any IdentityStorage) throws -> EnrollingProvider {
        let parameters = [
            "protocol": "scep", "url": server.url, "subject": "CN=client,O=Example", "timeout": "600",
            "ca-fingerprint": try CertifiedKey.authority.get().certificate.sha256Fingerprint.hexEncoded,
        ]
        let provider = try RemoteMDMProvider.make(
            environment: .testing(storage: storage, transport: Transport(retryPolicy: TurnedClock().retryPolicy)),
            parameters: ProviderParameters(parameters.mapValues { .init($0) }))
        return provider
    }
}

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

import CertificateProviding
import Enrolment
import NIOHTTP1
import ProviderTransport
import Synchronization
import TestSupport
import Testing

@testable import RemoteMDMProvider

/// Keys that the server makes (RFC 7030, section 4.4).
@Suite(.timeLimit(.minutes(20))) struct ServerKeyTests {
    private static let settings = ["server-keygen": "true"]

    @Test("Requesting a server-generated key fails with SCEP or a server that generates none")
    func nobodyGetsAKeyWithoutAsking() async throws {
        let server = try ESTResponder(.basic, .init(makesKeys: false))
        _ = try await server.provider().getCertificate(NoUserInteraction())
        let provider = try server.provider(Self.settings)
        #expect(await code { _ = try await provider.getCertificate(NoUserInteraction()) } == .configurationInvalid)
        #expect(server.requests.contains { $0.operation == .simpleenroll })
        let scep = ["protocol": "scep", "trust-anchors": "", "ca-fingerprint": String(repeating: "ab", count: 32)]
        #expect(
            await code { _ = try server.provider(scep.merging(Self.settings) { $1 }) } == .configurationInvalid)
    }

    @Test(
        "A faulty answer with a server-generated key is refused and not stored",
        arguments: [
            "other-key", "wrong-subject", "untrusted", "expired", "empty-bag", "not-base64", "garbage", "empty-body",
            "wrong-type", "cut-1200", "raw-der", "other-kind",
        ])
    func whatDoesNotFitIsRefused(fault: String) async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        let settings = Self.settings.merging(["key-type": "p256"]) { $1 }
        let provider = try server.provider(storage: storage, label: "fault-\(fault)", settings)
        let error = await #expect(throws: ProviderError.self) {
            try await provider.getCertificate(NoUserInteraction())
        }
        #expect(fault == "cut-1200" || error?.code == .protocolError, "\(String(describing: error))")
        #expect(try provider.getStoredCertificate() == nil)
    }

    @Test func aServersKeyReplacesTheRequestsKey() async throws {
        let (server, storage) = (try ESTResponder(.basic), InMemoryStorage())
        for _ in 0..<2 {
            let provider = try server.provider(storage: storage, Self.settings.merging(["key-type": "p256"]) { $1 })
            let identity = try await provider.getCertificate(NoUserInteraction())
            let keys = try await provider.plan.keyStore.list()
            #expect(keys.count == 1 && keys[0].reference.publicKey == identity.certificate.publicKey)
        }
    }

    /// A kill between two writes must not leave a certificate without its key.
    @Test func theKeyIsStoredBeforeItsCertificate() async throws {
        let server = try ESTResponder(.basic)
        let entries = Mutex([StoredIdentity]())
        let observer = Mutex<(@Sendable (StoredIdentity) -> Void)?>(nil)
        let storage = HookedStorage { call, _ in
            guard case .setEntry(let entry) = call else { return }
            observer.withLock(\.self)?(entry)
            entries.withLock { $0.append(entry) }
        }
        for count in 1...2 {
            let provider = try server.provider(storage: storage, Self.settings)
            observer.withLock {
                $0 = { entry in
                    let key = try? entry.key.map { try provider.keys.storedKey($0) }
                    #expect(key != nil, "The entry is written before its key.")
                }
            }
            let identity = try await provider.getCertificate(NoUserInteraction())
            #expect(entries.withLock(\.self).count == count)
            let last = try #require(entries.withLock(\.self).last)
            #expect(last.certificateChain.first == identity.certificate)
        }
    }

    /// The record of keys has that of the request and the server's.
    @Test(
        "A kill before the key of the request is destroyed leaves it to the next run",
        arguments: ["", "fault-untrusted", "fault-status-400"])
    func theKeyOfTheRequestIsDestroyedByTheNextRun(label: String) async throws {
        let server = try ESTResponder(.basic)
        let storage = InMemoryStorage()
        let provider = try server.provider(storage: storage, label: label, Self.settings)
        for _ in 0..<2 { _ = try await provider.keys.make(NewKey(.p256, label: "left"), NoUserInteraction()) }
        #expect(try await provider.keys.store.list().count == 2)
        let failure = await code { _ = try await provider.getCertificate(NoUserInteraction()) }
        #expect((failure == nil) == label.isEmpty)
        let left = try await provider.keys.store.list().map(\.reference.uri)
        #expect(left == [try provider.getStoredCertificate()?.key.uri].compactMap(\.self))
    }

    private func response(_ body: String, type: String = "multipart/mixed; boundary=b") -> HTTPResponse {
        HTTPResponse(status: 200, headers: ["Content-Type": type], body: Array(body.utf8))
    }

    private func part(_ type: String, _ content: String) -> String {
        "--b\r\nContent-Type: \(type)\r\n\r\n\(content)\r\n"
    }

    @Test("A multipart answer is split into its parts, and a malformed one refused")
    func partsAreToldApart() throws {
        let body =
            "preamble\r\n" + part("application/pkcs8", "AA\r\nBB") + part("text/plain; a=b", "--bx") + "--b--\r\nx"
        for type in [
            "multipart/mixed; boundary=b", "Multipart/Mixed;Boundary=\"b\"", "multipart/mixed; a=c; boundary=b ",
        ] {
            for text in [body, body.replacing("\r\n", with: "\n"), body.replacing("--b\r\n", with: "--b  \r\n")] {
                let parts = try MultipartBody(response(text, type: type)).parts
                #expect(parts.map(\.type) == ["application/pkcs8", "text/plain; a=b"])
                #expect(parts.map { String(decoding: $0.content, as: UTF8.self) } == ["AABB", "--bx"])
            }
        }
        for (text, type) in [
            (body, "text/html"), (body, "multipart/mixed"), (body, "multipart/mixed; boundary="),
            (body, "multipart/mixed; boundary=" + String(repeating: "b", count: 71)),
            (body.replacing("--b--", with: "--b-"), "multipart/mixed; boundary=b"), ("", "multipart/mixed; boundary=b"),
            (String(repeating: part("a/b", "c"), count: 9) + "--b--", "multipart/mixed; boundary=b"),
        ] {
            let error = #expect(throws: ProviderError.self) { try MultipartBody(response(text, type: type)) }
            #expect(error?.code == .protocolError)
        }
    }

    @Test func anEncryptedKeyIsRefusedWithTheReason() throws {
        let certificates = part("application/pkcs7-mime; smime-type=certs-only", "AAAA")
        let encrypted = part("application/pkcs7-mime; smime-type=server-generated-key", "AAAA")
        let error = #expect(throws: ProviderError.self) {
            try ServerGeneratedKey(response(encrypted + certificates + "--b--"))
        }
        #expect(error?.code == .unsupportedAlgorithm)
        let key = part("application/pkcs8", "AAAA")
        for parts in [key + key + certificates, key, certificates, key + certificates + certificates] {
            let error = #expect(throws: ProviderError.self) {
                try ServerGeneratedKey(response(parts + "--b--"))
            }
            #expect(error?.code == .protocolError && error?.message.contains("one of each") == true)
        }
    }
}

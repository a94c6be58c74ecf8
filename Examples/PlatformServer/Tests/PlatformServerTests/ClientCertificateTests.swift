import Foundation
import HTTPTypes
import HummingbirdTesting
import Logging
import SwiftASN1
import Testing
import X509

@testable import PlatformServer

@Suite("Certificates that a reverse proxy has verified")
struct ClientCertificateTests {
    let directory = TemporaryDirectory()

    private func authenticator() throws -> ProxiedClientCertificate {
        ProxiedClientCertificate(
            revocations: try Revocations(
                file: nil, authorities: [], logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() }))
    }

    private func headers(_ certificate: Certificate, verify: String = "SUCCESS") throws -> HTTPFields {
        var fields = HTTPFields()
        fields["X-Client-Verify"] = verify
        fields["X-Client-Certificate"] = try certificate.serializeAsPEM().pemString
            .addingPercentEncoding(withAllowedCharacters: .alphanumerics)
        return fields
    }

    @Test("A renewed certificate of the same subject is the same principal")
    func renewal() async throws {
        let subject = try DistinguishedName { CommonName("client") }
        let first = try headers(certificate(subject: subject))
        let second = try headers(certificate(subject: subject))
        let other = try headers(certificate(subject: DistinguishedName { CommonName("other") }))
        try await TestServer(directory: directory).test(authenticatedBy: authenticator()) { client async throws in
            #expect(try await client.send("POST", id: "c1", as: nil, body: entry(), headers: first).status == .created)
            #expect(try await client.send(id: "c1", as: nil, headers: second).status == .ok)
            #expect(try await client.send(id: "c1", as: nil, headers: other).status == .forbidden)
        }
    }

    @Test("A request without a verified, valid certificate with a subject is refused")
    func mistakes() async throws {
        let subject = try DistinguishedName { CommonName("client") }
        let good = try certificate(subject: subject)
        let expired = try certificate(subject: subject, notValidBefore: Date() - 120, notValidAfter: Date() - 60)
        let future = try certificate(subject: subject, notValidBefore: Date() + 60)
        var unreadable = try headers(good)
        unreadable["X-Client-Certificate"] = "%zz"
        var missing = try headers(good)
        missing["X-Client-Certificate"] = nil
        let cases: [(HTTPFields, Int)] = [
            ([:], 403), (try headers(good, verify: "NONE"), 403), (try headers(good, verify: "FAILED:expired"), 403),
            (try headers(good, verify: "SUCCESS, SUCCESS"), 403), (unreadable, 400), (missing, 400),
            (try headers(expired), 403), (try headers(future), 403),
            (try headers(certificate(subject: DistinguishedName())), 403),
        ]
        try await TestServer(directory: directory).test(authenticatedBy: authenticator()) { client async throws in
            for (headers, status) in cases {
                #expect(try await client.send("POST", as: nil, body: entry(), headers: headers).status.code == status)
            }
        }
    }

    @Test("Only an administrator sees the page, and names in it are text")
    func page() async throws {
        let script = "<script>alert('1')</script>"
        let hostile = try headers(certificate(subject: DistinguishedName { CommonName(script) }))
        let administrator = try headers(certificate(subject: DistinguishedName { CommonName("admin") }))
        let administrators: Set = ["CN=admin"]
        try await TestServer(directory: directory).test(
            authenticatedBy: authenticator(), administrators: administrators
        ) { client async throws in
            let body = entry("<d:DeviceType>&lt;img src=x&gt;</d:DeviceType>")
            #expect(try await client.send("POST", id: "c1", as: nil, body: body, headers: hostile).status == .created)
            #expect(try await client.send(as: nil, path: "/connections", headers: hostile).status == .forbidden)

            let page = try await client.send(as: nil, path: "/connections", headers: administrator)
            #expect(page.status == .ok)
            #expect(page.headers[.contentType] == "text/html; charset=UTF-8")
            let policy = try #require(page.headers[.contentSecurityPolicy])
            #expect(policy.hasPrefix("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"))
            #expect(page.text.contains("<td><code>c1</code></td><td>demo</td>"))
            #expect(page.text.contains(#"CN=\&lt;script\&gt;alert(&#39;1&#39;)\&lt;/script\&gt;"#))
            #expect(page.text.contains("<td>&lt;img src=x&gt;</td>"))
            #expect(!page.text.contains("<script") && !page.text.contains("<img"))
        }
    }

    @Test("The page shows 100 connections, the latest first, and links to older ones")
    func paging() async throws {
        let server = try TestServer(directory: directory)
        for number in 1...101 {
            _ = try await server.store.register(
                try #require(ConnectionID("c\(number)")), application: "demo", principal: Principal(user: "alice"),
                properties: [:], activation: nil, at: Date())
        }
        try await server.test(administrators: ["admin"]) { client async throws in
            let first = try await client.send(as: "admin", path: "/connections").text
            #expect(first.contains("<h1>Connections: 101</h1>"))
            #expect(first.contains("<code>c101</code>") && !first.contains("<code>c1</code>"))
            #expect(first.contains(#"<a href="?before=2">"#))
            let second = try await client.send(as: "admin", path: "/connections?before=2").text
            #expect(second.contains("<code>c1</code>") && !second.contains("before="))
        }
    }

    @Test("Bytes that are not a revocation list are an error")
    func malformedRevocationLists() {
        for bytes: [UInt8] in [
            [], [0x30], [0x30, 0x00], [0x30, 0x02, 0x30, 0x00], [0x30, 0x80], Array(repeating: 0x30, count: 64),
        ] {
            #expect(throws: (any Error).self) { try RevocationList(derEncoded: bytes) }
        }
    }
}

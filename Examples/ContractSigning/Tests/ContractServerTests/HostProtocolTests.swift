import Contracts
import Foundation
import GRDB
import HTTPTypes
import HummingbirdTesting
import NIOCore
import Testing

@testable import ContractServer

@Suite("The protocol of paired hosts")
struct HostProtocolTests {
    let server: TestServer

    init() throws { server = try TestServer() }

    @Test("A version goes up and comes down; the conditions and their answers are those of HTTP")
    func versions() async throws {
        let host = try await server.host()
        try await Fixture.putDocuments(server.book)
        let version = try Fixture.version(.inProgress)
        let (path, body) = ("/contracts/\(version.id)", version.json.bytes)
        try await server.test { client async throws in
            #expect(try await client.send(.put, path, as: host, body: body).status == .preconditionRequired)
            for fields: HTTPFields in [
                [.ifMatch: "1"], [.ifMatch: "*"], [.ifMatch: "W/\"1\""], [.ifMatch: "\"1\", \"2\""],
                [.ifNoneMatch: "\"1\""], [.ifMatch: "\"1\"", .ifNoneMatch: "*"], [.ifMatch: "\""],
            ] { #expect(try await client.send(.put, path, as: host, fields, body: body).status == .badRequest) }
            let none = try await client.send(.put, path, as: host, [.ifMatch: "\"1\""], body: body)
            #expect(none.status == .conflict)
            #expect(try none.json["contract"] == nil && none.json["account"]?.string == TestServer.alice)

            let created = try await client.send(.put, path, as: host, [.ifNoneMatch: "*"], body: body)
            #expect(created.status == .created)
            let revision = try #require(try created.json["revision"]?.integer)
            #expect(try created.json["account"]?.string == TestServer.alice)
            for fields: HTTPFields in [[.ifNoneMatch: "*"], [.ifMatch: "\"999\""], [.ifMatch: "\"\(revision)\""]] {
                let again = try await client.send(.put, path, as: host, fields, body: body)
                #expect(again.status == .ok)
                #expect(try again.json["revision"]?.integer == revision)
            }
            let other = try Fixture.version(.inProgress, id: version.id, number: "C-2").json.bytes
            let conflict = try await client.send(.put, path, as: host, [.ifNoneMatch: "*"], body: other)
            #expect(conflict.status == .conflict)
            #expect(try conflict.json["revision"]?.integer == revision)
            let there = try #require(try conflict.json["contract"])
            #expect(try ContractVersion(json: there) == version)

            let changes = try await client.send(.get, "/contracts", as: host).json
            #expect(changes["account"]?.string == TestServer.alice && changes["more"] == .bool(false))
            let contract = try #require(changes["contracts"]?.array?.first)
            #expect(contract["revision"]?.integer == revision)
            #expect(try ContractVersion(json: contract) == version)
        }
    }

    @Test("A version that is spoiled, or no JSON, is 422, naming the member")
    func spoiled() async throws {
        let host = try await server.host()
        let version = try Fixture.version(.toValidate)
        func json(_ change: (inout JSONValue) -> Void) -> [UInt8] {
            var json = version.json
            change(&json)
            return json.bytes
        }
        let cases: [([UInt8], Int, String?)] = [
            (Array("{".utf8), 422, nil), (Array("[]".utf8), 422, "state"),
            (Array(#"{"state":1,"state":1}"#.utf8), 422, "state"),
            (Array("[\(String(repeating: "0,", count: 1 << 20))0]".utf8), 422, "[1048575]"),
            (json { $0.set("state", .string("signed")) }, 422, "state"),
            (json { $0.set("state", .string("inProgress")) }, 422, "approvals"),
            (json { $0.set("content", .object([])) }, 422, "customer"),
            (json { $0.set("approvals", .array([.object([])])) }, 422, "approvals[0].approved"),
            (json { $0.set("abandonment", .object([.init("reason", .string("x"))])) }, 422, "abandonment"),
            (json { $0.set("id", .string(Fixture.id())) }, 422, "id"),
            (version.json.bytes, 422, "contract.pdf_file_path"),
        ]
        try await server.test { client async throws in
            for (body, status, member) in cases {
                let answer = try await client.send(
                    .put, "/contracts/\(version.id)", as: host, [.ifNoneMatch: "*"], body: body)
                #expect(answer.status.code == status)
                #expect(try answer.json["member"]?.string == member, "\(answer.text)")
            }
            for id in ["1", version.id.uppercased(), "\(version.id)0"] {
                let answer = try await client.send(
                    .put, "/contracts/\(id)", as: host, [.ifNoneMatch: "*"], body: version.json.bytes)
                #expect(answer.status == .notFound)
            }
        }
        #expect(try await server.book.list(limit: 1).total == 0)
    }

    @Test("A content with more levels than a file may have is refused, and spoils no list")
    func depth() async throws {
        let host = try await server.host()
        try await Fixture.putDocuments(server.book)
        try await server.test { client async throws in
            for (levels, status) in [(15, 201), (16, 422), (18, 422), (19, 422)] {
                var content = try Fixture.content().json
                content.set("deep", (1..<levels).reduce(JSONValue.array([])) { value, _ in .array([value]) })
                let body = JSONValue.object([.init("state", .string("inProgress")), .init("content", content)]).bytes
                let answer = try await client.send(
                    .put, "/contracts/\(Fixture.id())", as: host, [.ifNoneMatch: "*"], body: body)
                #expect(answer.status.code == status, "\(levels): \(answer.text)")
                #expect(try await client.send(.get, "/contracts", as: host).status == .ok)
            }
        }
    }

    @Test("Cursors, limits, and a cursor that is forgotten")
    func changes() async throws {
        let host = try await server.host()
        try await Fixture.putDocuments(server.book)
        for _ in 0..<3 {
            _ = try await server.book.put(try Fixture.version(.inProgress), of: TestServer.alice, after: nil)
        }
        try await server.test { client async throws in
            let first = try await client.send(.get, "/contracts?limit=2", as: host).json
            #expect(first["contracts"]?.array?.count == 2 && first["more"] == .bool(true))
            let cursor = try #require(first["cursor"]?.string)
            let second = try await client.send(.get, "/contracts?after=\(cursor)&limit=2", as: host).json
            #expect(second["contracts"]?.array?.count == 1 && second["more"] == .bool(false))
            for query in ["limit=0", "limit=501", "limit=x", "limit=1&limit=1", "after=1&after=1", "after=%00"] {
                #expect(try await client.send(.get, "/contracts?\(query)", as: host).status == .badRequest)
            }
            for cursor in ["", "x", "\(cursor)1"] {
                #expect(try await client.send(.get, "/contracts?after=\(cursor)", as: host).status == .gone)
            }
        }
    }

    @Test("A code over HTTP: 403 with the tries that are left, 410 when it is spent or expired")
    func codes() async throws {
        let host = try await server.host()
        let (id, document) = (Fixture.id(), DocumentReference(of: Fixture.pdf()).sha256)
        let to = #""signatory":0,"by":"mail","address":"alice@example.org""#
        @Sendable func body(_ members: String) -> [UInt8] { Array("{\(members),\"document\":\"\(document)\"}".utf8) }
        try await server.test { client async throws in
            let (make, confirm) = ("/contracts/\(id)/code", "/contracts/\(id)/code/confirm")
            func send(_ code: String) async throws -> TestResponse {
                try await client.send(.post, confirm, as: host, body: body("\(to),\"code\":\"\(code)\""))
            }
            #expect(try await send("123456").status == .notFound)
            let request = body(to)
            #expect(try await client.send(.post, make, as: host, body: request).status == .noContent)
            let code = try #require(server.notifier.all.last).code
            for left in [2, 1, 0] {
                let wrong = try await send(code == "000000" ? "000001" : "000000")
                #expect(wrong.status == .forbidden)
                #expect(try wrong.json["tries_left"]?.integer == left)
            }
            #expect(try await send(code).status == .gone)
            #expect(try await client.send(.post, make, as: host, body: request).status == .noContent)
            let confirmed = try await send(try #require(server.notifier.all.last).code)
            #expect(try confirmed.status == .ok && confirmed.json["receipt"]?.string?.isEmpty == false)
            #expect(try await client.send(.post, make, as: host, body: request).status == .noContent)
            server.clock.advance(600)
            #expect(try await send(try #require(server.notifier.all.last).code).status == .gone)
            for members in [
                #""by":"mail","address":"a@b""#, #""signatory":0,"by":"mail""#,
                #""signatory":0,"by":1,"address":"a@b""#,
            ] {
                let answer = try await client.send(.post, make, as: host, body: body(members))
                #expect(answer.status == .unprocessableContent)
            }
            #expect(!server.log.all.contains(code))
        }
    }

    @Test("A host that is unpaired, expired or of an account that is gone is 403 at each request")
    func revocation() async throws {
        let (first, second, third) = (
            try await server.host(), try await server.host(), try await server.host(TestServer.bob)
        )
        let csr = Array(try CSR.make("host").base64EncodedString().utf8)
        try await server.test { client async throws in
            func statuses(_ host: String?) async throws -> Set<Int> {
                var statuses: Set<Int> = []
                for (method, path) in [
                    (HTTPRequest.Method.get, "/contracts"), (.put, "/contracts/\(Fixture.id())"),
                    (.head, "/documents/\(DocumentReference(of: [1]).sha256)"), (.delete, "/pairing"),
                    (.post, "/contracts/\(Fixture.id())/code"), (.post, "/.well-known/est/simplereenroll"),
                ] {
                    let fields: HTTPFields = [.contentType: "application/pkcs10", .ifNoneMatch: "*"]
                    statuses.insert(try await client.send(method, path, as: host, fields, body: csr).status.code)
                }
                return statuses
            }
            #expect(try await client.send(.get, "/contracts", as: first).status == .ok)
            #expect(try await client.send(.delete, "/pairing", as: first).status == .noContent)
            #expect(try await statuses(first) == [403])
            #expect(try await statuses(nil) == [403])
            #expect(try await client.send(.get, "/contracts", as: second).status == .ok)
            #expect(try await client.send(.get, "/contracts", as: third).json["account"]?.string == TestServer.bob)
            server.clock.advance(3600)
            #expect(try await statuses(second) == [403])
        }
        let fewer = HostRegistry(try ServerDatabase(), accounts: Accounts([]), now: server.clock.now)
        #expect(try await fewer.host(withCertificate: third) == nil)
    }

    @Test("A renewal gives another certificate for the same host; unpaired, all of them are void")
    func renewal() async throws {
        let host = try await server.host()
        let csr = Array(try CSR.make("host").base64EncodedString().utf8)
        try await server.test { client async throws in
            let path = "/.well-known/est/simplereenroll"
            let renewed = try await client.send(.post, path, as: host, [.contentType: "application/pkcs10"], body: csr)
            #expect(renewed.status == .ok)
            #expect(renewed.headers[.contentType] == "application/pkcs7-mime; smime-type=certs-only")
            #expect(try await client.send(.get, "/contracts", as: host).status == .ok)
            let others = try await server.registry.database.read {
                try String.fetchAll($0, sql: "SELECT fingerprint FROM certificate")
            }.filter { $0 != host }
            let next = try #require(others.first)
            #expect(others.count == 1)
            #expect(try await client.send(.get, "/contracts", as: next).json["account"]?.string == TestServer.alice)
            #expect(try await client.send(.delete, "/pairing", as: next).status == .noContent)
            #expect(try await client.send(.get, "/contracts", as: host).status == .forbidden)
        }
    }

    @Test("Unknown paths are 404 and other methods 405, each with a sentence")
    func others() async throws {
        try await server.test { client async throws in
            for path in ["/", "/x", "/contracts/x/y", "/.well-known/est/other", "/calinda/hub"] {
                #expect(try await client.send(.get, path).status == .notFound)
            }
            for (method, path) in [
                (HTTPRequest.Method.post, "/contracts"), (.get, "/contracts/\(Fixture.id())"), (.post, "/pairing"),
                (.post, "/.well-known/est/cacerts"), (.get, "/.well-known/est/simpleenroll"),
            ] {
                let answer = try await client.send(method, path)
                #expect(answer.status == .methodNotAllowed && answer.text.contains("Allowed: "))
            }
        }
    }
}

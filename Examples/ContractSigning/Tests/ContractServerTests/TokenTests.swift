import Contracts
import Foundation
import GRDB
import HTTPTypes
import HummingbirdTesting
import Testing
import X509

@testable import ContractServer

@Suite("The vendor's call for a token, and pairing")
struct TokenTests {
    static let path = "/calinda/hub/createTemporaryToken.action"
    let server: TestServer

    init() throws { server = try TestServer() }

    private func body(_ email: String = TestServer.alice, in seconds: TimeInterval = 3600) -> [UInt8] {
        let time = Int((server.clock.now().timeIntervalSince1970 + seconds) * 1000)
        return Array(#"{"email":"\#(email)","time":\#(time)}"#.utf8)
    }

    private func basic(_ token: String, user: String = "pairing") -> HTTPFields {
        [.authorization: "Basic \(Data("\(user):\(token)".utf8).base64EncodedString())"]
    }

    @Test("The answer is the token as text, or as JSON where that is asked for; j_token is a header or in the query")
    func forms() async throws {
        let encoded = try #require(TestServer.seed.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
        try await server.test { client async throws in
            let text = try await client.send(.post, Self.path, seed: TestServer.seed, body: body())
            #expect(text.status == .ok && text.headers[.contentType] == "text/plain; charset=UTF-8")
            #expect(Data(base64Encoded: text.text)?.count == 32 && text.headers[.cacheControl] == "no-store")
            let json = try await client.send(
                .post, "\(Self.path)?j_token=\(encoded)", [.accept: "text/html, application/json;q=0.9"], body: body())
            #expect(json.status == .ok && json.headers[.contentType] == "application/json")
            let token = try json.json["token"]?["token"]?.string
            #expect(token != nil && token != text.text)
            for token in [text.text, token ?? ""] {
                let account = try await client.send(.get, "/pairing", basic(token))
                #expect(try account.json["account"]?.string == TestServer.alice)
            }
        }
    }

    @Test("A wrong j_token is 401, another method 405, an unknown email 404")
    func refused() async throws {
        let encoded = try #require(TestServer.seed.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
        try await server.test { client async throws in
            for (seed, query) in [
                (nil, ""), ("", ""), ("a seed", ""), ("\(TestServer.seed)x", ""), (nil, "?j_token="),
                (nil, "?j_token=a+seed"), (TestServer.seed, "?j_token=other"),
            ] as [(String?, String)] {
                let answer = try await client.send(.post, Self.path + query, seed: seed, body: body())
                #expect(answer.status == .unauthorized, "\(seed ?? "none") \(query)")
                #expect(try answer.error == "The j_token is missing or wrong.")
            }
            let twice = "\(Self.path)?j_token=\(encoded)&j_token=\(encoded)"
            #expect(try await client.send(.post, twice, body: body()).status == .badRequest)
            for method in [HTTPRequest.Method.get, .put, .delete, .head, .patch] {
                let answer = try await client.send(method, Self.path, seed: TestServer.seed, body: body())
                #expect(answer.status == .methodNotAllowed && answer.headers[.allow] == "POST")
            }
            let unknown = try await client.send(
                .post, Self.path, seed: TestServer.seed, body: body("carol@example.com"))
            #expect(unknown.status == .notFound)
            #expect(try unknown.error == "There is no account carol@example.com.")
        }
    }

    @Test("A time that is past, more than a day ahead, in seconds or no number is 400, saying which")
    func times() async throws {
        let now = Int(server.clock.now().timeIntervalSince1970)
        let cases: [(String, String?)] = [
            ("\(now * 1000 + 1000)", nil), ("\(now * 1000 + 86_400_000)", nil),
            ("\(now * 1000)", "past"), ("\(now * 1000 - 3_600_000)", "past"), ("0", "past"), ("-1", "past"),
            ("\(now * 1000 + 86_400_001)", "more than a day ahead"), ("\(Int.max)", "more than a day ahead"),
            ("\(now)", "in seconds"), ("\(now + 3600)", "in seconds"), ("\(now - 3600)", "in seconds"),
            ("\"\(now * 1000 + 1000)\"", "no whole number"), ("1e300", "no whole number"), ("null", "no whole number"),
            ("\(now)000.5", "no whole number"),
        ]
        try await server.test { client async throws in
            for (time, reason) in cases {
                let body = Array(#"{"email":"\#(TestServer.alice)","time":\#(time)}"#.utf8)
                let answer = try await client.send(.post, Self.path, seed: TestServer.seed, body: body)
                #expect(answer.status == (reason == nil ? .ok : .badRequest), "\(time)")
                if let reason { #expect(try answer.error.contains(reason), "\(time)") }
            }
            for body in ["", "[]", "{", #"{"time":1}"#, #"{"email":1,"time":1}"#, #"{"email":"a"}"#] {
                let answer = try await client.send(.post, Self.path, seed: TestServer.seed, body: Array(body.utf8))
                #expect(answer.status == .badRequest, "\(body)")
            }
        }
    }

    @Test("A token pairs once, until it expires, for the right user name, unchanged; looking at it uses nothing up")
    func once() async throws {
        let csr = Array(try CSR.make("host").base64EncodedString().utf8)
        let enrol = "/.well-known/est/simpleenroll"
        try await server.test { client async throws in
            func token() async throws -> String {
                try await client.send(.post, Self.path, seed: TestServer.seed, body: body(in: 60)).text
            }
            func pair(_ headers: HTTPFields) async throws -> TestResponse {
                var headers = headers
                headers[.contentType] = "application/pkcs10"
                return try await client.send(.post, enrol, headers, body: csr)
            }
            let first = try await token()
            for headers: HTTPFields in [
                [:], basic(""), basic(first + "x"), basic(String(first.dropLast())), basic(first, user: "other"),
                basic(first.lowercased()), [.authorization: "Bearer \(first)"], [.authorization: "Basic ?"],
            ] {
                for answer in [try await pair(headers), try await client.send(.get, "/pairing", headers)] {
                    #expect(answer.status == .unauthorized)
                    #expect(answer.headers[.wwwAuthenticate]?.hasPrefix(#"Basic realm="pairing""#) == true)
                }
            }
            for _ in 0..<3 { #expect(try await client.send(.get, "/pairing", basic(first)).status == .ok) }
            #expect(try await pair(basic(first)).status == .ok)
            #expect(try await pair(basic(first)).status == .unauthorized)
            #expect(try await client.send(.get, "/pairing", basic(first)).status == .unauthorized)
            let second = try await token()
            server.clock.advance(60)
            #expect(try await pair(basic(second)).status == .unauthorized)
        }
    }

    @Test("Of many enrolments at once with a token, one gets a certificate")
    func race() async throws {
        let token = try await server.registry.makeToken(for: TestServer.alice, until: server.clock.now() + 60)
        var headers = basic(token)
        headers[.contentType] = "application/pkcs10"
        let (fields, csr) = (headers, Array(try CSR.make("host").base64EncodedString().utf8))
        let paired = try await server.test { client async throws in
            try await withThrowingTaskGroup { group in
                for _ in 0..<16 {
                    group.addTask {
                        try await client.send(.post, "/.well-known/est/simpleenroll", fields, body: csr).status
                    }
                }
                return try await group.reduce(into: 0) { if $1 == .ok { $0 += 1 } }
            }
        }
        #expect(paired == 1)
    }

    @Test("A request that is no CSR, or one of another key, uses no token up")
    func spoiledRequests() async throws {
        let token = try await server.registry.makeToken(for: TestServer.alice, until: server.clock.now() + 60)
        var forged = try CSR.make("host")
        forged[forged.count - 1] ^= 1
        let good = try CSR.make("host").base64EncodedString()
        let cases: [(String, String, HTTPResponse.Status)] = [
            (good, "text/plain", .unsupportedMediaType), ("", "application/pkcs10", .badRequest),
            ("?", "application/pkcs10", .badRequest), ("MAA=", "application/pkcs10", .badRequest),
            (forged.base64EncodedString(), "application/pkcs10", .badRequest),
            (try CSR.make(nil).base64EncodedString(), "application/pkcs10", .badRequest),
            // The names of others are not the host's to choose.
            (try CSR.make("Bob Boss").base64EncodedString(), "application/pkcs10", .badRequest),
            (
                try CSR.make("host", names: [.rfc822Name("bob@example.com")]).base64EncodedString(),
                "application/pkcs10", .badRequest
            ),
            (String(repeating: "A", count: 70_000), "application/pkcs10", .contentTooLarge),
            (
                try CSR.make("host", names: [.rfc822Name(TestServer.alice)]).base64EncodedString(),
                "application/pkcs10; charset=us-ascii", .ok
            ),
        ]
        try await server.test { client async throws in
            for (body, type, status) in cases {
                var headers = basic(token)
                headers[.contentType] = type
                let answer = try await client.send(
                    .post, "/.well-known/est/simpleenroll", headers, body: Array(body.utf8))
                #expect(answer.status == status)
            }
        }
    }

    @Test("Accounts are the same by their bytes, not by their characters; a mail address of a certificate is ASCII")
    func accounts() throws {
        let accounts = Accounts(["jos\u{e9}@example.com"])
        #expect(accounts.contains("jos\u{e9}@example.com") && !accounts.contains("jose\u{301}@example.com"))
        #expect(CertificateAuthority.names(of: TestServer.alice)?.count == 1)
        #expect(CertificateAuthority.names(of: "jos\u{e9}@example.com") == nil)
    }

    @Test("Tokens and secrets are in no log and not in the database")
    func secrets() async throws {
        let encoded = try #require(TestServer.seed.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
        let token = try await server.test { client async throws in
            let token = try await client.send(.post, "\(Self.path)?j_token=\(encoded)", body: body()).text
            #expect(try await client.send(.get, "/pairing?token=\(token)", basic(token)).status == .ok)
            _ = try await client.send(.get, "/pairing", basic(token + "x"))
            return token
        }
        let log = server.log.all
        #expect(log.contains(Self.path) && log.contains(TestServer.alice))
        for secret in [token, encoded, TestServer.seed, Data("pairing:\(token)".utf8).base64EncodedString()] {
            #expect(!log.contains(secret))
        }
        let stored = try await server.registry.database.read { try Data.fetchAll($0, sql: "SELECT hash FROM token") }
        #expect(stored.count == 1 && stored[0].count == 32 && !stored[0].contains(Data(token.utf8)))
    }
}

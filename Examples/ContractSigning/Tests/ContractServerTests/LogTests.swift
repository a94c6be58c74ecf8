import Contracts
import Foundation
import HTTPTypes
import HummingbirdTesting
import Testing

@testable import ContractServer

@Suite("The log")
struct LogTests {
    let server: TestServer

    init() throws { server = try TestServer() }

    private func lines(_ level: String, _ message: String, _ parts: String...) -> Int {
        server.log.all.split(separator: "\n").count { line in
            line.hasPrefix("\(level) \(message) ") && parts.allSatisfy { line.contains($0) }
        }
    }

    @Test("What happens to a contract is one line with the account and the contract")
    func contracts() async throws {
        let host = try await server.host()
        try await Fixture.putDocuments(server.book)
        let (version, document) = (try Fixture.version(.toValidate), DocumentReference(of: Fixture.pdf()).sha256)
        let (id, coded) = (version.id, Fixture.id())
        let added = try await server.test { client async throws in
            let answer = try await client.send(
                .post, "\(OfficeTests.path)?email=alice%40example.com", seed: TestServer.seed, body: Files.sellsign())
            let added = try #require(try answer.json["id"]?.string)
            let url = "\(OfficeTests.path)/\(added)"
            _ = try await client.send(.put, url, seed: TestServer.seed, body: Files.sellsign(number: "C-2"))
            _ = try await client.send(.post, "\(url)/abandon", seed: TestServer.seed)
            _ = try await client.send(.delete, url, seed: TestServer.seed)

            let path = "/contracts/\(id)"
            _ = try await client.send(.put, path, as: host, [.ifNoneMatch: "*"], body: version.json.bytes)
            let other = try Fixture.version(.abandoned, id: id).json.bytes
            _ = try await client.send(.put, path, as: host, [.ifNoneMatch: "*"], body: other)
            for call in ["validate", "archive"] {
                _ = try await client.send(.post, "\(OfficeTests.path)/\(id)/\(call)", seed: TestServer.seed)
            }

            func code(_ path: String, _ members: String) async throws {
                let body = #"{"document":"\#(document)",\#(members)}"#
                _ = try await client.send(.post, "/contracts/\(coded)/code\(path)", as: host, body: Array(body.utf8))
            }
            let to = #""signatory":0,"by":"mail","address":"bob@example.org""#
            try await code("", to)
            try await code("/confirm", #"\#(to),"code":"x""#)
            try await code("/confirm", "\(to),\"code\":\"\(try #require(server.notifier.all.last).code)\"")
            return added
        }
        for (message, contract) in [
            ("contract put in", added), ("contract replaced", added), ("contract abandoned", added),
            ("contract deleted", added), ("contract received", id), ("contract in conflict", id),
            ("contract validated", id), ("contract archived", id), ("code sent", coded), ("code refused", coded),
            ("code confirmed", coded),
        ] { #expect(lines("info", message, TestServer.alice, contract) == 1, "\(message)") }
        #expect(!server.log.all.contains("bob@example.org"))
    }

    @Test("A refused token or certificate is a warning, without the token")
    func refused() async throws {
        try await server.test { client async throws in
            _ = try await client.send(.post, TokenTests.path, seed: "not-the-seed")
            // Without a token, a client asks whether one is needed.
            _ = try await client.send(.get, "/pairing")
            let basic = Data("pairing:not-the-token".utf8).base64EncodedString()
            _ = try await client.send(.get, "/pairing", [.authorization: "Basic \(basic)"])
            _ = try await client.send(.get, "/contracts", as: "00ff")
        }
        #expect(lines("warning", "j_token refused", "wrong") == 1)
        #expect(lines("warning", "pairing token refused") == 1)
        #expect(lines("warning", "certificate of no paired host", "00ff") == 1)
        #expect(!server.log.all.contains("not-the-"))
    }
}

import Contracts
import Foundation
import HTTPTypes
import HummingbirdTesting
import NIOCore
import Testing

@testable import ContractServer

@Suite("The back office")
struct OfficeTests {
    static let path = "/calinda/hub/contracts"
    let server: TestServer

    init() throws { server = try TestServer() }

    private func add(_ client: any TestClientProtocol, _ file: [UInt8]) async throws -> String {
        let answer = try await client.send(
            .post, "\(Self.path)?email=alice%40example.com", seed: TestServer.seed, body: file)
        #expect(answer.status == .created)
        let id = try #require(try answer.json["id"]?.string)
        #expect(answer.headers[.location] == "\(Self.path)/\(id)")
        return id
    }

    @Test("A file is put in, and comes back with everything that was in it, and its state")
    func file() async throws {
        let file = Files.sellsign(others: #""my_own":{"a":[1.50,null,"é"]},"#)
        try await server.test { client async throws in
            let id = try await add(client, file)
            let shown = try await client.send(.get, "\(Self.path)/\(id)", seed: TestServer.seed)
            #expect(shown.status == .ok)
            let json = try JSONValue(parsing: Array(buffer: shown.body))
            #expect(json["file"] == (try JSONValue(parsing: file)))
            #expect(json["state"]?.string == "inProgress" && json["account"]?.string == TestServer.alice)
            #expect(json["missing"] == .array([]) && json["signature"] == nil)

            let incomplete = try await add(client, Files.sellsign(firstName: nil))
            let other = try await client.send(.get, "\(Self.path)/\(incomplete)", seed: TestServer.seed)
            let state = try JSONValue(parsing: Array(buffer: other.body))
            #expect(state["state"]?.string == "incomplete" && state["missing"] == .array([.string("firstname")]))
        }
    }

    @Test("The answer says whether hosts get the contract, and why not")
    func hosts() async throws {
        try await server.test { client async throws in
            let id = try await add(client, Files.sellsign(isKeptOnMove: false))
            let url = "\(Self.path)/\(id)"
            let hidden = try await client.send(.get, url, seed: TestServer.seed).json
            #expect(hidden["hosts"] == .bool(false))
            #expect(hidden["note"]?.string?.contains("contract.keep_on_move") == true)
            let shared = try await client.send(.put, url, seed: TestServer.seed, body: Files.sellsign()).json
            #expect(shared["hosts"] == .bool(true) && shared["note"] == nil)
        }
    }

    @Test("A spoiled file is 422, naming the member, and nothing is kept; an unknown account is 404")
    func spoiled() async throws {
        try await server.test { client async throws in
            for (file, member) in [
                (Files.sellsign(mode: 4), "customer.mode"), (Files.sellsign(number: ""), "customer.number"),
                (Files.sellsign(pdf: Array("no PDF".utf8)), "contract.pdf_file_path"),
            ] {
                let answer = try await client.send(
                    .post, "\(Self.path)?email=alice%40example.com", seed: TestServer.seed, body: file)
                #expect(answer.status == .unprocessableContent)
                #expect(try answer.json["member"]?.string == member)
            }
            // What is wrong is no member.
            for file in ["x", "[]", ""] {
                let answer = try await client.send(
                    .post, "\(Self.path)?email=alice%40example.com", seed: TestServer.seed, body: Array(file.utf8))
                #expect(answer.status == .unprocessableContent)
                #expect(try answer.json["member"] == nil && answer.error.hasPrefix("The "))
            }
            let file = Files.sellsign()
            for (query, status) in [("?email=carol%40example.com", 404), ("", 400), ("?email=%ff", 400)] {
                let answer = try await client.send(.post, Self.path + query, seed: TestServer.seed, body: file)
                #expect(answer.status.code == status)
            }
        }
        #expect(try await server.book.list(limit: 10).total == 0)
        let documents = try await server.book.sizeOfDocument(
            DocumentReference(of: Files.pdf()).sha256, of: TestServer.alice)
        #expect(documents == nil)
    }

    @Test(
        "Each event is taken or refused as the states say, and repeated without a change",
        arguments: ContractState.allCases)
    func events(_ state: ContractState) async throws {
        let allowed: [String: [ContractState]] = [
            "validate": [.toValidate], "archive": [.validated], "abandon": [.incomplete, .inProgress],
        ]
        let results: [String: ContractState] = [
            "validate": .validated, "archive": .archived, "abandon": .abandoned,
        ]
        try await Fixture.putDocuments(server.book)
        for (call, states) in allowed {
            let id = Fixture.id()
            let first: ContractState = state.isSigned ? .toValidate : state
            _ = try await server.book.put(try Fixture.version(first, id: id), of: TestServer.alice, after: nil)
            if state == .validated || state == .archived { _ = try await server.book.apply(.validated, to: id) }
            if state == .archived { _ = try await server.book.apply(.archived, to: id) }
            let before = try await server.book.contract(id).revision
            let isTaken = states.contains(state)
            try await server.test { client async throws in
                let answer = try await client.send(.post, "\(Self.path)/\(id)/\(call)", seed: TestServer.seed)
                let isDone = results[call] == state
                #expect(answer.status == (isTaken || isDone ? .ok : .conflict), "\(call)")
                if !isTaken, !isDone { #expect(try answer.error.contains("is \(state)")) }
            }
            let after = try await server.book.contract(id)
            #expect(after.version.state == (isTaken ? results[call] : state))
            #expect((after.revision != before) == isTaken)
        }
    }

    @Test("Another file is taken in the first two states; hosts get it as a change, and the same file changes nothing")
    func replace() async throws {
        let host = try await server.host()
        try await server.test { client async throws in
            let id = try await add(client, Files.sellsign(firstName: nil))
            let first = try await client.send(.get, "/contracts", as: host).json
            let cursor = try #require(first["cursor"]?.string)
            #expect(first["contracts"]?.array?.first?["state"]?.string == "incomplete")
            let url = "\(Self.path)/\(id)"
            for _ in 0..<2 {
                let answer = try await client.send(.put, url, seed: TestServer.seed, body: Files.sellsign())
                #expect(answer.status == .ok)
                #expect(try answer.json["state"]?.string == "inProgress")
            }
            let changes = try await client.send(.get, "/contracts?after=\(cursor)", as: host).json
            #expect(changes["contracts"]?.array?.count == 1)
            #expect(try await client.send(.post, "\(url)/abandon", seed: TestServer.seed).status == .ok)
            let late = try await client.send(.put, url, seed: TestServer.seed, body: Files.sellsign(number: "C-2"))
            #expect(late.status == .conflict)
        }
    }

    @Test("The documents of a signature are there after it, and the contract goes with a deletion")
    func signature() async throws {
        try await Fixture.putDocuments(server.book)
        let (version, open) = (try Fixture.version(.toValidate), try Fixture.version(.inProgress))
        try await server.test { client async throws in
            let url = "\(Self.path)/\(version.id)"
            #expect(try await client.send(.get, "\(url)/signed.pdf", seed: TestServer.seed).status == .notFound)
            _ = try await server.book.put(version, of: TestServer.alice, after: nil)
            for (index, part) in ["signed.pdf", "evidence.json", "evidence.p7s"].enumerated() {
                let answer = try await client.send(.get, "\(url)/\(part)", seed: TestServer.seed)
                #expect(answer.status == .ok && Array(buffer: answer.body) == Fixture.signatureDocuments[index])
                let numbered = part.replacing("evidence", with: "evidence-1")
                #expect(try await client.send(.get, "\(url)/\(numbered)", seed: TestServer.seed).text == answer.text)
            }
            for part in [
                "other", "evidence", "evidence-0.json", "evidence-01.json", "evidence-2.p7s", "evidence-1.pdf",
            ] {
                #expect(try await client.send(.get, "\(url)/\(part)", seed: TestServer.seed).status == .notFound)
            }
            _ = try await server.book.put(open, of: TestServer.alice, after: nil)
            let early = try await client.send(.get, "\(Self.path)/\(open.id)/evidence.json", seed: TestServer.seed)
            #expect(early.status == .notFound)
            #expect(try await client.send(.delete, url, seed: TestServer.seed).status == .noContent)
            for (method, path) in [
                (HTTPRequest.Method.get, url), (.delete, url), (.post, "\(url)/validate"), (.get, "\(url)/signed.pdf"),
            ] { #expect(try await client.send(method, path, seed: TestServer.seed).status == .notFound) }
        }
    }

    @Test("The pairings of an account end with its tokens; an unknown account is 404")
    func pairings() async throws {
        let host = try await server.host()
        let token = try await server.registry.makeToken(for: TestServer.alice, until: server.clock.now() + 60)
        let path = "/calinda/hub/pairings?email="
        try await server.test { client async throws in
            let unknown = try await client.send(.delete, "\(path)alise%40example.com", seed: TestServer.seed)
            #expect(unknown.status == .notFound)
            #expect(try unknown.error == "There is no account alise@example.com.")
            let cut = try await client.send(.delete, "\(path)alice%40example.com%00", seed: TestServer.seed)
            #expect(cut.status == .badRequest)
            #expect(try await server.registry.account(ofToken: token) != nil)
            for hosts in [1, 0] {
                let ended = try await client.send(.delete, "\(path)alice%40example.com", seed: TestServer.seed)
                #expect(ended.status == .ok)
                #expect(try ended.json["hosts"]?.integer == hosts)
            }
            #expect(try await client.send(.get, "/contracts", as: host).status == .forbidden)
        }
        #expect(try await server.registry.account(ofToken: token) == nil)
    }

    @Test("No call is answered without the j_token, not even that a contract is there")
    func authentication() async throws {
        try await server.test { client async throws in
            let id = try await add(client, Files.sellsign())
            for (method, path) in [
                (HTTPRequest.Method.post, "\(Self.path)?email=alice%40example.com"), (.get, "\(Self.path)/\(id)"),
                (.put, "\(Self.path)/\(id)"), (.delete, "\(Self.path)/\(id)"), (.post, "\(Self.path)/\(id)/validate"),
                (.get, "\(Self.path)/\(id)/signed.pdf"), (.get, "\(Self.path)/none"),
            ] {
                let host = try await server.host()
                #expect(try await client.send(method, path, as: host).status == .unauthorized)
                #expect(try await client.send(method, path, seed: "wrong").status == .unauthorized)
            }
        }
    }
}

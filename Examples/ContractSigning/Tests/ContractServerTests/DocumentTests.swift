import Contracts
import Foundation
import HTTPTypes
import HummingbirdTesting
import NIOCore
import Testing

@testable import ContractServer

@Suite("Documents")
struct DocumentTests {
    @Test("A document is stored by its digest, again without a change, for its account alone")
    func documents() async throws {
        let server = try TestServer()
        let (alice, bob) = (try await server.host(), try await server.host(TestServer.bob))
        let content = Array("content".utf8)
        let path = "/documents/\(DocumentReference(of: content).sha256)"
        try await server.test { client async throws in
            let missing = try await client.send(.head, path, as: alice)
            #expect(missing.status == .notFound && missing.body.readableBytes == 0)
            #expect(try await client.send(.put, path, as: alice, body: content).status == .created)
            #expect(try await client.send(.put, path, as: alice, body: content).status == .noContent)
            let read = try await client.send(.get, path, as: alice)
            #expect(read.status == .ok && Array(buffer: read.body) == content)
            let head = try await client.send(.head, path, as: alice)
            #expect(head.status == .ok && head.headers[.contentLength] == "7" && head.body.readableBytes == 0)
            #expect(try await client.send(.head, path, as: bob).status == .notFound)
            #expect(try await client.send(.get, path, as: bob).status == .notFound)
            #expect(try await client.send(.put, path, as: bob, body: content).status == .created)
            #expect(try await client.send(.put, path, as: alice, body: content + [0]).status == .unprocessableContent)
            #expect(try await client.send(.put, path.uppercased(), as: alice, body: content).status == .notFound)
            #expect(try await client.send(.delete, path, as: alice).status == .methodNotAllowed)
            for method in [HTTPRequest.Method.get, .head, .put] {
                #expect(try await client.send(method, path, body: content).status == .forbidden)
                #expect(try await client.send(method, path, as: "none", body: content).status == .forbidden)
            }
        }
    }

    @Test("50 MB are taken, and not one byte more")
    func size() async throws {
        let server = try TestServer()
        let host = try await server.host()
        let content = [UInt8](repeating: 7, count: 52_000_000)
        try await server.test { client async throws in
            let path = "/documents/\(DocumentReference(of: content).sha256)"
            #expect(try await client.send(.put, path, as: host, body: content).status == .created)
            #expect(try await client.send(.get, path, as: host).body.readableBytes == content.count)
            let larger = content + [7]
            let other = "/documents/\(DocumentReference(of: larger).sha256)"
            #expect(try await client.send(.put, other, as: host, body: larger).status == .contentTooLarge)
            #expect(try await client.send(.head, other, as: host).status == .notFound)
        }
    }

    @Test("Documents without a contract go a day after they were sent or asked for, others stay")
    func sweep() async throws {
        let server = try TestServer()
        let book = server.book
        try await Fixture.putDocuments(book)
        try await Fixture.putDocuments(book, TestServer.bob)
        _ = try await book.put(try Fixture.version(.inProgress), of: TestServer.alice, after: nil)
        let (pdf, asked, other) = (
            DocumentReference(of: Fixture.pdf()).sha256, DocumentReference(of: Fixture.signatureDocuments[0]).sha256,
            DocumentReference(of: Fixture.signatureDocuments[1]).sha256
        )
        server.clock.advance(80_000)
        #expect(try await book.sizeOfDocument(asked, of: TestServer.alice) != nil)
        server.clock.advance(10_000)
        try await book.removeUnreferencedDocuments(unseenSince: server.clock.now() - Sweeper.age)
        #expect(try await book.document(pdf, of: TestServer.alice) != nil)
        #expect(try await book.document(asked, of: TestServer.alice) != nil)
        #expect(try await book.document(other, of: TestServer.alice) == nil)
        #expect(try await book.document(pdf, of: TestServer.bob) == nil)
    }
}

import CertificateProviding
import Contracts
import Foundation
import GRDB
import HTTPTypes
import HummingbirdTesting
import NIOCore
import Testing

@testable import ContractServer

@Suite("What has changed, and cursors")
struct ChangesTests {
    private func put(_ book: ContractBook, _ version: ContractVersion, after revision: Int? = nil) async throws -> Int {
        let answer = try await book.put(version, of: TestServer.alice, after: revision)
        guard case .accepted(let revision) = answer.outcome else { throw Unexpected() }
        return revision
    }

    struct Unexpected: Error {}

    @Test("Each contract comes once, the oldest change first, in parts, and then only what changes")
    func paging() async throws {
        let book = try TestServer().book
        try await Fixture.putDocuments(book)
        var versions: [ContractVersion] = []
        var revisions: [Int] = []
        for number in 0..<5 {
            versions.append(try Fixture.version(.inProgress, number: "N-\(number)"))
            revisions.append(try await put(book, versions[number]))
        }
        // The first one is now the last.
        var changed = versions[0]
        changed.state = .abandoned
        _ = try await put(book, changed, after: revisions[0])
        var (found, cursor): ([String], String?) = ([], nil)
        repeat {
            let changes = try #require(try await book.changes(of: TestServer.alice, after: cursor, limit: 2))
            found += changes.contracts.map(\.version.id)
            cursor = changes.cursor
            #expect(changes.account == TestServer.alice)
            if !changes.hasMore { break }
        } while true
        #expect(found == versions[1...].map(\.id) + [versions[0].id])
        #expect(try await book.changes(of: TestServer.alice, after: cursor, limit: 2)?.contracts == [])
        let last = try Fixture.version(.inProgress)
        _ = try await put(book, last)
        let next = try await book.changes(of: TestServer.alice, after: cursor, limit: 2)
        #expect(next?.contracts.map(\.version) == [last] && next?.hasMore == false)
    }

    @Test("A cursor is forgotten after a deletion, for the account alone; the new one is good")
    func deletion() async throws {
        let book = try TestServer().book
        for account in [TestServer.alice, TestServer.bob] { try await Fixture.putDocuments(book, account) }
        let version = try Fixture.version(.inProgress)
        _ = try await put(book, version)
        let cursor = try #require(try await book.changes(of: TestServer.alice, after: nil, limit: 9)).cursor
        let other = try #require(try await book.changes(of: TestServer.bob, after: nil, limit: 9)).cursor
        try await book.delete(version.id)
        #expect(try await book.changes(of: TestServer.alice, after: cursor, limit: 9) == nil)
        #expect(try await book.changes(of: TestServer.bob, after: other, limit: 9) != nil)
        let all = try #require(try await book.changes(of: TestServer.alice, after: nil, limit: 9))
        #expect(all.contracts == [])
        #expect(try await book.changes(of: TestServer.alice, after: all.cursor, limit: 9) != nil)
        // Also those in the middle of the list, at revisions from before the deletion.
        let others = try (0..<3).map { _ in try Fixture.version(.inProgress) }
        for other in others { _ = try await put(book, other) }
        try await book.delete(others[2].id)
        var (found, position): (Int, String?) = (0, nil)
        for _ in 0..<2 {
            let page = try #require(try await book.changes(of: TestServer.alice, after: position, limit: 1))
            (found, position) = (found + page.contracts.count, page.cursor)
            #expect(page.hasMore == (found < 2))
        }
        #expect(found == 2)
        // A host whose answer was lost does not bring it back.
        let again = try await book.put(version, of: TestServer.alice, after: nil)
        #expect(again.outcome == .conflict(nil))
    }

    @Test("A cursor of another account or database, from the future, or made up is forgotten")
    func strange() async throws {
        let (book, another) = (try TestServer().book, try TestServer().book)
        try await Fixture.putDocuments(book)
        _ = try await put(book, try Fixture.version(.inProgress))
        let own = try #require(try await book.changes(of: TestServer.alice, after: nil, limit: 9)).cursor
        let future = own.replacing("-1", with: "-2")
        var cursors = ["", "-", "1", "-1", "\(own)0", "\(own) ", own.uppercased() + "x", future]
        cursors.append(try #require(try await book.changes(of: TestServer.bob, after: nil, limit: 9)).cursor)
        cursors.append(try #require(try await another.changes(of: TestServer.alice, after: nil, limit: 9)).cursor)
        for cursor in cursors where cursor != own {
            #expect(try await book.changes(of: TestServer.alice, after: cursor, limit: 9) == nil, "\(cursor)")
        }
        #expect(try await book.changes(of: TestServer.alice, after: own, limit: 9) != nil)
    }

    @Test("Of the back office's contracts those with keep_on_move come, and stay")
    func keepOnMove() async throws {
        let book = try TestServer().book
        let documents = [DocumentReference(of: Fixture.pdf()): Fixture.pdf()]
        let kept = try await book.add(Fixture.content(isKeptOnMove: true), documents, for: TestServer.alice)
        let hidden = try await book.add(Fixture.content(), documents, for: TestServer.alice)
        func ids() async throws -> [String]? {
            try await book.changes(of: TestServer.alice, after: nil, limit: 9)?.contracts.map(\.version.id)
        }
        #expect(try await ids() == [kept.version.id])
        // A host that guesses its name gets no more.
        let outcome = try await book.put(hidden.version, of: TestServer.alice, after: hidden.revision).outcome
        #expect(outcome == .conflict(nil))
        _ = try await book.replace(kept.version.id, Fixture.content(number: "C-2"), documents)
        _ = try await book.replace(hidden.version.id, Fixture.content(isKeptOnMove: true), documents)
        #expect(try await ids() == [kept.version.id, hidden.version.id])
    }

    @Test("A part ends before it is larger than a host wants to read")
    func size() async throws {
        let book = try TestServer().book
        try await Fixture.putDocuments(book)
        for _ in 0..<3 {
            var json = try Fixture.content().json
            json.set("note", .string(String(repeating: "x", count: 1_500_000)))
            _ = try await put(
                book, ContractVersion(id: Fixture.id(), state: .inProgress, content: try ContractContent(json)))
        }
        let first = try #require(try await book.changes(of: TestServer.alice, after: nil, limit: 9))
        #expect(first.contracts.count == 2 && first.hasMore)
        let second = try #require(try await book.changes(of: TestServer.alice, after: first.cursor, limit: 9))
        #expect(second.contracts.count == 1 && !second.hasMore)
    }

    @Test("After a backup was restored, cursors are forgotten, and no revision is there again")
    func restored() async throws {
        let (clock, database, backup) = (TestClock(), try ServerDatabase(), try ServerDatabase())
        func start(_ database: ServerDatabase) throws -> ContractBook {
            try ContractBook(database, evidence: NoEvidenceCheck(), now: clock.now)
        }
        let before = try start(database)
        let documents = [DocumentReference(of: Fixture.pdf()): Fixture.pdf()]
        let id = try await before.add(
            Fixture.content(isKeptOnMove: true, firstName: nil), documents, for: TestServer.alice
        ).version.id
        try database.writer.backup(to: backup.writer)
        let lost = try await before.replace(id, Fixture.content(number: "100", isKeptOnMove: true), documents)
        let cursor = try #require(try await before.changes(of: TestServer.alice, after: nil, limit: 9)).cursor
        clock.advance(1)
        let after = try start(backup)
        _ = try await after.replace(id, Fixture.content(number: "999", isKeptOnMove: true), documents)
        #expect(try await after.changes(of: TestServer.alice, after: cursor, limit: 9) == nil)
        var signed = lost.version
        signed.state = .abandoned
        let outcome = try await after.put(signed, of: TestServer.alice, after: lost.revision).outcome
        guard case .conflict(let there?) = outcome else { throw Unexpected() }
        #expect(there.version.content.customerNumber == "999" && there.revision > lost.revision)
    }

    @Test("A part has no more values than a host reads, and a contract no more than fit into one")
    func values() async throws {
        let server = try TestServer()
        let host = try await server.host()
        let documents = [DocumentReference(of: Fixture.pdf()): Fixture.pdf()]
        let base = try Fixture.content(isKeptOnMove: true).json
        func content(values: Int) throws -> ContractContent {
            var json = base
            json.set("options", .array(Array(repeating: .number("0"), count: values - base.count - 1)))
            return try ContractContent(json)
        }
        let most = JSONValue.maximumValues - ContractVersion.maximumEnvelope.values
        for count in [most, most / 2, most / 2] {
            _ = try await server.book.add(content(values: count), documents, for: TestServer.alice)
        }
        #expect(
            try await refusal {
                _ = try await server.book.add(content(values: most + 1), documents, for: TestServer.alice)
            }?
            .reason == .invalid(member: nil))
        try await server.test { client async throws in
            var (counts, query): ([Int], String) = ([], "")
            repeat {
                let answer = try await client.send(.get, "/contracts\(query)", as: host)
                let page = try JSONValue(
                    parsing: Array(buffer: answer.body), maximumDepth: ContractVersion.maximumDepth)
                counts.append(page["contracts"]?.array?.count ?? 0)
                guard page["more"] == .bool(true) else { break }
                query = "?after=\(page["cursor"]?.string ?? "")"
            } while counts.count < 9
            #expect(counts == [1, 1, 1])
        }
    }
}

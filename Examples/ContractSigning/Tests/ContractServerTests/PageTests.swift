import Contracts
import Foundation
import HTTPTypes
import Hummingbird
import HummingbirdTesting
import Testing

@testable import ContractServer

@Suite("The page")
struct PageTests {
    let server: TestServer

    init() throws { server = try TestServer() }

    @discardableResult private func page<Result: Sendable>(
        _ uri: String = "/", _ body: @Sendable @escaping (TestResponse) throws -> Result
    ) async throws -> Result {
        try await Application(router: try server.server.pageRouter(), logger: server.log.logger).test(.router) {
            client async throws in
            try body(try await client.send(.get, uri))
        }
    }

    @Test("It shows contracts and states without a script, and names in them are text")
    func contracts() async throws {
        try await Fixture.putDocuments(server.book)
        for state in [ContractState.incomplete, .inProgress, .toValidate] {
            let version = try Fixture.version(state, number: "<script>alert('\(state)')</script>\u{202e}")
            _ = try await server.book.put(version, of: TestServer.alice, after: nil)
        }
        try await page { page in
            #expect(page.status == .ok && page.headers[.contentType] == "text/html; charset=UTF-8")
            let policy = try #require(page.headers[.contentSecurityPolicy])
            #expect(policy.hasPrefix("default-src 'none'; style-src 'sha256-") && !policy.contains("unsafe"))
            #expect(page.text.contains("<h1>Contracts: 3</h1>") && page.text.contains("missing: firstname"))
            #expect(page.text.contains("toValidate<br><small>signed by 1 of 1, 2027-01-15T07:59:59Z"))
            #expect(page.text.contains("&lt;script&gt;") && !page.text.contains("<script"))
            #expect(!page.text.contains("\u{202e}"))
        }
    }

    @Test("It shows 100 contracts, the last changed first, and links to older ones")
    func paging() async throws {
        let documents = [DocumentReference(of: Fixture.pdf()): Fixture.pdf()]
        for number in 0...100 {
            _ = try await server.book.add(Fixture.content(number: "N-\(number)"), documents, for: TestServer.alice)
        }
        let older = try await page { page in
            #expect(page.text.contains("<td>N-100</td>") && !page.text.contains("<td>N-0</td>"))
            return String(try #require(page.text.firstMatch(of: /<a href="(\?before=[0-9]+)">/)).1)
        }
        try await page("/\(older)") { page in
            #expect(page.text.contains("<td>N-0</td>") && !page.text.contains("<td>N-1</td>"))
        }
    }

    @Test(
        "It is there for names of this machine only",
        arguments: [
            ("localhost", true), ("localhost:80", true), ("127.0.0.1:8080", true), ("[::1]:1", true), ("", false),
            ("evil.example", false), ("localhost.evil.example", false), ("127.0.0.1.evil.example:80", false),
            ("[::2]", false), ("[", false),
        ])
    func names(_ authority: String, isThere: Bool) {
        #expect(ContractsPage.isLoopback(authority) == isThere)
    }
}

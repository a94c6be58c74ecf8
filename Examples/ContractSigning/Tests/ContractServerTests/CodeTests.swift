import CertificateProviding
import Contracts
import Crypto
import Foundation
import GRDB
import HTTPTypes
import HummingbirdTesting
import Subprocess
import Testing

@testable import ContractServer

@Suite("Codes that identify a signatory")
struct CodeTests {
    let server: TestServer
    let id = Fixture.id()
    let document = DocumentReference(of: Fixture.pdf()).sha256

    init() throws { server = try TestServer() }

    private func request(
        _ id: String? = nil, _ channel: CodeChannel = .textMessage, to address: String? = nil, document: String? = nil,
        signatory: Int = 0
    ) -> CodeRequest {
        CodeRequest(
            contract: id ?? self.id, signatory: signatory, channel: channel,
            address: address ?? (channel == .mail ? "alice@example.org" : "+33 6 12 34 56 78"),
            document: document ?? self.document)
    }

    private func make(
        _ id: String? = nil, _ channel: CodeChannel = .textMessage, to address: String? = nil,
        of account: String = TestServer.alice, signatory: Int = 0
    ) async throws -> Refusal.Reason? {
        try await refusal {
            try await server.book.makeCode(
                request(id, channel, to: address, signatory: signatory), of: account, notifier: server.notifier)
        }?.reason
    }

    private func confirm(
        _ code: String, document: String? = nil, of account: String = TestServer.alice, signatory: Int = 0
    ) async throws -> Refusal.Reason? {
        try await refusal {
            _ = try await server.book.confirmCode(
                code, for: request(document: document, signatory: signatory), of: account)
        }?.reason
    }

    private func wrong(_ code: String) -> String { code == "000000" ? "000001" : "000000" }

    private var code: String { get throws { try #require(server.notifier.all.last).code } }

    @Test("A code has six digits, goes to the notifier, and is in the database as a hash only")
    func made() async throws {
        #expect(try await make() == nil)
        let notice = try #require(server.notifier.all.first)
        #expect(notice.channel == .textMessage && notice.address == "+33 6 12 34 56 78" && notice.contract == id)
        #expect(notice.code.utf8.count == 6 && notice.code.utf8.allSatisfy { (48...57).contains($0) })
        let stored = try await server.book.database.read { database in
            try Data.fetchAll(database, sql: "SELECT hash FROM code")
        }
        #expect(stored.map(\.count) == [32])
    }

    @Test("The right code confirms, again as well; another document or account has none")
    func confirmed() async throws {
        #expect(try await confirm("123456") == .notFound)
        #expect(try await make() == nil)
        let code = try code
        let other = DocumentReference(of: [1]).sha256
        #expect(try await confirm(code, document: other) == .notFound)
        #expect(try await confirm(code, of: TestServer.bob) == .notFound)
        #expect(try await confirm(code, signatory: 1) == .notFound)
        #expect(try await confirm(code) == nil)
        server.clock.advance(700)
        #expect(try await confirm(code) == nil)
    }

    @Test("Three wrong codes use it up, also at once; another one is good again")
    func tries() async throws {
        #expect(try await make() == nil)
        let first = try code
        #expect(try await confirm(wrong(first)) == .wrongCode(triesLeft: 2))
        // What is no code at all costs nothing.
        for text in ["", "abc", "\(first) ", "\(first)0", "\u{0661}\u{0661}\u{0661}"] {
            #expect(try await confirm(text) == .wrongCode(triesLeft: 2), "\(text)")
        }
        #expect(try await confirm(wrong(first)) == .wrongCode(triesLeft: 1))
        #expect(try await confirm(wrong(first)) == .wrongCode(triesLeft: 0))
        #expect(try await confirm(first) == .codeSpent)
        #expect(try await make() == nil)
        let second = try code
        let reasons = try await withThrowingTaskGroup { group in
            for _ in 0..<20 { group.addTask { try await confirm(wrong(second)) } }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        #expect(reasons.count { $0 == .codeSpent } == 17)
        #expect(try await confirm(second) == .codeSpent)
    }

    @Test("A code lives for ten minutes, and not a second longer")
    func expiry() async throws {
        #expect(try await make() == nil)
        server.clock.advance(599)
        #expect(try await confirm(wrong(try code)) == .wrongCode(triesLeft: 2))
        server.clock.advance(1)
        #expect(try await confirm(try code) == .codeExpired)
    }

    @Test("Each signatory has codes of its own, one for each way")
    func ofEach() async throws {
        let requests = [request(), request(nil, .mail), request(signatory: 1)]
        var codes: [String] = []
        for request in requests {
            try await server.book.makeCode(request, of: TestServer.alice, notifier: server.notifier)
            codes.append(try code)
        }
        var receipts: Set<String> = []
        for (request, code) in zip(requests, codes) {
            receipts.insert(try await server.book.confirmCode(code, for: request, of: TestServer.alice))
        }
        #expect(receipts.count == 3)
    }

    @Test("Another code takes the place of the first, confirmed or not")
    func replaced() async throws {
        #expect(try await make() == nil)
        let first = try code
        #expect(try await confirm(first) == nil)
        #expect(try await make() == nil)
        if try code != first { #expect(try await confirm(first) == .wrongCode(triesLeft: 2)) }
        #expect(try await confirm(try code) == nil)
    }

    @Test("Ten codes an hour for a signatory, and to an address; then 3 tries in a million stay few")
    func limit() async throws {
        for _ in 0..<10 { #expect(try await make() == nil) }
        #expect(try await make() == .tooManyCodes)
        #expect(try await make(Fixture.id()) == .tooManyCodes)
        #expect(try await make(to: "+33 6 00 00 00 00") == .tooManyCodes)
        #expect(try await make(to: "+33 6 00 00 00 00", signatory: 1) == nil)
        #expect(try await make(Fixture.id(), to: "+33 6 00 00 00 00") == nil)
        // Another account's hosts do not use up this one's.
        #expect(try await make(Fixture.id(), of: TestServer.bob) == nil)
        server.clock.advance(3601)
        #expect(try await make() == nil)
    }

    @Test(
        "All spellings of an address are one address",
        arguments: [
            (
                CodeChannel.textMessage,
                [
                    "+33612345678", "+33 6 12 34 56 78", "+3361234567   8", "0033612345678", "0612345678", "612345678",
                    "06.12.34.56.78", "+33 (0)6 12-34-56-78", "06/12/34/56/78", "(06)12345678", "+33612345678+",
                    "12345678",
                ]
            ),
            (
                .mail,
                [
                    "alice@example.org", "Alice@Example.ORG", "alice+1@example.org", "alice+2@example.org",
                    "ALICE+@example.org",
                ]
            ),
        ])
    func spellings(_ channel: CodeChannel, _ addresses: [String]) async throws {
        for count in 0..<10 {
            #expect(try await make(Fixture.id(), channel, to: addresses[count % addresses.count]) == nil)
        }
        for address in addresses {
            #expect(try await make(Fixture.id(), channel, to: address) == .tooManyCodes, "\(address)")
        }
        let other = channel == .mail ? "alice@example.com" : "+33612345679"
        #expect(try await make(Fixture.id(), channel, to: other) == nil)
    }

    @Test("What is asked for has to be right")
    func spoiled() async throws {
        func flaw(_ member: String, _ value: JSONValue, by: String = "text message") -> Bool {
            var json = JSONValue.object([
                .init("signatory", .number("0")), .init("by", .string(by)),
                .init("address", .string(by == "mail" ? "alice@example.org" : "+33612345678")),
                .init("document", .string(document)),
            ])
            guard (try? CodeRequest(json: json, contract: id)) != nil else { return false }
            json.set(member, value)
            do throws(ProviderError) { _ = try CodeRequest(json: json, contract: id) } catch {
                return error.message.hasPrefix("\(member): ")
            }
            return false
        }
        for address in ["", "a\nb", "alice@example.org", "+33612345678,1", "+33612345678 x1", "٠٦١٢٣٤٥٦٧٨", "123"] {
            #expect(flaw("address", .string(address)), "\(address)")
        }
        for address in ["+33612345678", "a@example.org,b@example.org", "a@b@c", "a b@example.org"] {
            #expect(flaw("address", .string(address), by: "mail"), "\(address)")
        }
        #expect(flaw("by", .string("letter")) && flaw("by", .number("1")) && flaw("document", .string("12")))
        #expect(flaw("signatory", .number("-1")) && flaw("signatory", .number("32")) && flaw("signatory", .null))
        #expect(try await make() == nil)
        #expect(try await make(of: TestServer.bob) == .notFound)
        #expect(server.notifier.all.count == 1)
    }

    /// A version that the customer has signed, with receipts.
    private func version(_ mode: ContractContent.Mode, _ receipts: [String]) throws -> ContractVersion {
        ContractVersion(
            id: id, state: .toValidate, content: try Fixture.content(mode: mode.rawValue),
            approvals: [try Fixture.approval(receipts: receipts)])
    }

    private func receipt(_ request: CodeRequest, at server: TestServer) async throws -> String {
        try await server.book.makeCode(request, of: TestServer.alice, notifier: server.notifier)
        return try await server.book.confirmCode(
            try #require(server.notifier.all.last).code, for: request, of: TestServer.alice)
    }

    @Test(
        "A signature needs a confirmed code for its document, signatory and address, by each way of its mode",
        arguments: [ContractContent.Mode.textMessage, .mail])
    func signature(_ mode: ContractContent.Mode) async throws {
        let book = server.book
        try await Fixture.putDocuments(book)
        func put(_ receipts: [String]) async throws -> Refusal.Reason? {
            let version = try version(mode, receipts)
            return try await refusal { _ = try await book.put(version, of: TestServer.alice, after: nil) }?.reason
        }
        var right: [String] = []
        for channel in mode.channels { right.append(try await receipt(request(nil, channel), at: server)) }
        let last = try #require(mode.channels.last)
        let (foreign, other) = (try TestServer(), DocumentReference(of: [1]).sha256)
        let address = last == .mail ? "another@example.org" : "+33 6 00 00 00 00"
        for wrong in [
            try await receipt(request(nil, last, to: address), at: server),
            try await receipt(request(nil, last, document: other), at: server),
            try await receipt(request(nil, last, signatory: 1), at: server),
            try await receipt(request(nil, last), at: foreign), String(right[0].reversed()), "", "x",
        ] {
            #expect(try await put(right.dropLast() + [wrong]) == .invalid(member: "approvals[0].receipts"))
        }
        #expect(try await put([]) == .invalid(member: "approvals[0].receipts"))
        #expect(try await put(right + right) == .invalid(member: "approvals[0].receipts"))
        if mode == .mail {
            #expect(try await put(right.reversed()) == .invalid(member: "approvals[0].receipts"))
        }
        // Confirmed again, it is the same.
        #expect(try await receipt(request(nil, last), at: server) == right.last)
        #expect(try await put(right) == nil)
        #expect(try await make() == .wrongState)
    }

    @Test("A confirmed code is good for its signature, whatever another host asks for and types meanwhile")
    func otherHost() async throws {
        try await Fixture.putDocuments(server.book)
        let version = try version(.textMessage, [try await receipt(request(), at: server)])
        for address in ["+33 6 12 34 56 78", "+33 6 00 00 00 00"] {
            #expect(try await make(to: address) == nil)
            for _ in 0..<3 { #expect(try await confirm(wrong(try code)) != nil) }
        }
        #expect(try await server.book.put(version, of: TestServer.alice, after: nil).isNew)
    }

    @Test("A signature reaches a server that was restored to a time before its code")
    func restored() async throws {
        let key = SymmetricKey(size: .bits256)
        func book() throws -> ContractBook { try ContractBook(codeKey: key, evidence: NoEvidenceCheck()) }
        let before = try book()
        try await before.makeCode(request(), of: TestServer.alice, notifier: server.notifier)
        let receipt = try await before.confirmCode(try code, for: request(), of: TestServer.alice)
        let restored = try book()
        try await Fixture.putDocuments(restored)
        let version = try version(.textMessage, [receipt])
        #expect(try await restored.put(version, of: TestServer.alice, after: nil).isNew)
    }

    @Test("Without a notifier there are no codes, and a host is told so")
    func noNotifier() async throws {
        let server = try TestServer(hasNotifier: false)
        let host = try await server.host()
        let body = #"{"signatory":0,"by":"text message","address":"+33612345678","document":"\#(document)"}"#
        let id = id
        try await server.test { client async throws in
            let answer = try await client.send(.post, "/contracts/\(id)/code", as: host, body: Array(body.utf8))
            #expect(answer.status == .serviceUnavailable)
            #expect(try answer.error.contains("notifier"))
        }
    }

    @Test("The notifier program gets the code on its standard input, and its failure is told")
    func program() async throws {
        let directory = try TemporaryDirectory()
        let script = "\(directory.path)/notify"
        // A file that this process has had open for writing, a child of another test may have open still: this one is only read.
        func write(_ text: String) throws {
            try text.write(toFile: script + ".commands", atomically: true, encoding: .utf8)
        }
        try write("#!/bin/sh\n. '\(script).commands'\n")
        let copy = try await Subprocess.run(
            .name("install"), arguments: ["-m", "700", script + ".commands", script], output: .discarded,
            error: .discarded)
        try #require(copy.terminationStatus.isSuccess)
        let notice = CodeNotice(channel: .mail, address: "a\"b@example.org", code: "012345", contract: id)
        try write("cat >'\(directory.path)/got'")
        let log = TestLog()
        // The threads that run tasks may be other tests' for long.
        try await NotifierProgram(script, timeout: .seconds(600), logger: log.logger).notify(notice)
        let got = try JSONValue(parsing: Array(Data(contentsOf: URL(filePath: "\(directory.path)/got"))))
        #expect(got["by"]?.string == "mail" && got["address"]?.string == "a\"b@example.org")
        #expect(got["code"]?.string == "012345" && got["contract"]?.string == id)
        // One that does not read ends nothing but itself.
        try write("exec <&-; exit 0")
        for _ in 0..<20 {
            try await NotifierProgram(script, timeout: .seconds(600), logger: log.logger).notify(notice)
        }
        for (text, timeout) in [
            ("echo first >&2; sed 's/^/refused: /' >&2; echo >&2; exit 3", Duration.seconds(600)),
            ("cat; sleep 100", .milliseconds(200)),
        ] {
            try write(text)
            let found = try await refusal {
                try await NotifierProgram(script, timeout: timeout, logger: log.logger).notify(notice)
            }
            #expect(found?.reason == .noNotifier)
        }
        let missing = try await refusal {
            try await NotifierProgram("\(directory.path)/none", logger: log.logger).notify(notice)
        }
        #expect(missing?.reason == .noNotifier)
        // The last line of stderr is in the log, and the code is not.
        #expect(log.all.contains("refused: {") && log.all.contains("******") && !log.all.contains("first"))
        #expect(!log.all.contains("012345"))
    }
}

import CertificateProviding
import Contracts
import Foundation
import Synchronization
import Testing

@testable import ContractServer

@Suite("Versions that hosts send")
struct PutTests {
    enum Condition: CaseIterable, Sendable { case isNew, right, wrong }

    static let states: [ContractState?] = [nil] + ContractState.allCases.map { $0 }

    /// What a host may do, written down: the state that a contract may have after another one.
    static let steps: [ContractState?: Set<ContractState>] = [
        nil: [.incomplete, .inProgress, .toValidate, .abandoned],
        .incomplete: [.incomplete, .inProgress, .toValidate, .abandoned],
        .inProgress: [.inProgress, .toValidate, .abandoned],
        .toValidate: [], .validated: [], .archived: [], .abandoned: [],
    ]

    @Test(
        "Each state, condition and change is accepted or a conflict, as written", arguments: states, Condition.allCases)
    func everything(_ current: ContractState?, _ condition: Condition) async throws {
        for next in ContractState.allCases {
            for isOther in [false, true] {
                let server = try TestServer()
                let book = server.book
                try await Fixture.putDocuments(book)
                let id = Fixture.id()
                let before = try await Self.prepare(current, id, in: book)
                let version = try Fixture.version(next, id: id, number: isOther ? "C-2" : "C-1")
                let revision: Int? =
                    switch condition {
                    case .isNew: nil
                    case .right: before ?? 1
                    case .wrong: (before ?? 1) + 1
                    }
                let answer = try await book.put(version, of: TestServer.alice, after: revision)
                let isSame = current == next && !isOther
                let isMet = current == nil ? condition == .isNew : condition == .right
                // Of what is there, nothing but missing values may change.
                let isAllowed = try #require(Self.steps[current]).contains(next) && (current == nil || !isOther)
                let comment = Comment("\(current.map { "\($0)" } ?? "none") → \(next), other: \(isOther), \(condition)")
                if isSame {
                    #expect(answer == .init(outcome: .accepted(revision: try #require(before))), comment)
                } else if isMet, isAllowed {
                    guard case .accepted(let revision) = answer.outcome else {
                        Issue.record("\(comment): \(answer)")
                        continue
                    }
                    #expect(revision > before ?? 0 && answer.isNew == (current == nil), comment)
                    #expect(try await book.contract(id).version == version, comment)
                } else {
                    guard case .conflict(let there) = answer.outcome else {
                        Issue.record("\(comment): \(answer)")
                        continue
                    }
                    #expect(there?.revision == before && there?.version.state == current, comment)
                }
            }
        }
    }

    /// Brings a contract to a state, by hosts and the back office.
    private static func prepare(_ state: ContractState?, _ id: String, in book: ContractBook) async throws -> Int? {
        guard let state else { return nil }
        let first: ContractState = state.isSigned ? .toValidate : state
        _ = try await book.put(try Fixture.version(first, id: id), of: TestServer.alice, after: nil)
        if state == .validated || state == .archived { _ = try await book.apply(.validated, to: id) }
        if state == .archived { _ = try await book.apply(.archived, to: id) }
        return try await book.contract(id).revision
    }

    @Test("Of two hosts that change the same revision at once, one is accepted")
    func race() async throws {
        let server = try TestServer()
        try await Fixture.putDocuments(server.book)
        let id = Fixture.id()
        _ = try await server.book.put(try Fixture.version(.incomplete, id: id), of: TestServer.alice, after: nil)
        let revision = try await server.book.contract(id).revision
        let accepted = try await withThrowingTaskGroup { group in
            for number in 0..<16 {
                group.addTask {
                    let version = ContractVersion(
                        id: id, state: .inProgress, content: try Fixture.content(firstName: "X-\(number)"))
                    return try await server.book.put(version, of: TestServer.alice, after: revision).outcome
                }
            }
            return try await group.reduce(into: 0) { count, outcome in
                if case .accepted = outcome { count += 1 }
            }
        }
        #expect(accepted == 1)
    }

    @Test("A host fills in what is missing, also otherwise than another host, and changes nothing else")
    func filling() async throws {
        let book = try TestServer().book
        try await Fixture.putDocuments(book)
        _ = try await book.putDocument(Fixture.pdf("2"), for: TestServer.alice)
        func content(
            _ pdf: [UInt8] = Fixture.pdf(), number: String = "C-1", mode: Int = 1, firstName: String? = "Alice",
            place: String? = "o@example.org", title: String = "Mr"
        ) throws -> ContractContent {
            var json = try Fixture.content(pdf, number: number, mode: mode, isKeptOnMove: true, firstName: firstName)
                .json
            let properties = try [("email", place), ("title", title)].map { key, value in
                var text = #"{"key":"\#(key)","to_fill_by_user":1"#
                if let value { text += #","value":"\#(value)""# }
                return try JSONValue(parsing: Array("\(text)}".utf8))
            }
            json.set("contract_properties", .array(properties))
            return try ContractContent(json)
        }
        let open = try content(firstName: nil, place: nil)
        let added = try await book.add(
            open, [DocumentReference(of: Fixture.pdf()): Fixture.pdf()], for: TestServer.alice)
        let id = added.version.id
        func put(_ content: ContractContent) async throws -> Bool {
            let version = ContractVersion(
                id: id, state: content.missing.isEmpty ? .inProgress : .incomplete, content: content)
            let outcome = try await book.put(
                version, of: TestServer.alice, after: try await book.contract(id).revision
            ).outcome
            if case .accepted = outcome { return true }
            return false
        }
        func changed() throws -> [ContractContent] {
            [
                try content(Fixture.pdf("2")), try content(number: "EVIL"), try content(mode: 2),
                try content(title: "Ms"), try Fixture.content(mode: 1, isKeptOnMove: true),
            ]
        }
        for content in try changed() { #expect(try await !put(content)) }
        // In two steps, as a person does it; the property has the name of a field.
        let half = try open.filling(["email": "o@example.org"])
        #expect(half.missing == ["firstname"])
        #expect(try await put(half))
        #expect(try await put(try half.filling(["first_name": "Alice"])))
        // A person at another host decides for what was filled in there.
        #expect(try await put(try content(firstName: "Bob", place: "l@example.org")))
        for content in try changed() { #expect(try await !put(content)) }
        // What the back office replaces comes back no more.
        _ = try await book.replace(id, try content(number: "C-2", firstName: nil), [:])
        #expect(try await !put(try content()))
        #expect(try await put(try content(number: "C-2")))
    }

    @Test("A version without its documents is refused, naming the member")
    func documents() async throws {
        let server = try TestServer()
        let (book, text) = (server.book, Array("text".utf8))
        let content = try Fixture.content(attachment: text)
        let id = Fixture.id()
        func put() async throws -> Refusal.Reason? {
            try await refusal {
                _ = try await book.put(
                    ContractVersion(id: id, state: .toValidate, content: content, approvals: [try Fixture.approval()]),
                    of: TestServer.alice, after: nil)
            }?.reason
        }
        let documents = [Fixture.pdf(), text] + Fixture.signatureDocuments
        let members = [
            "contract.pdf_file_path", "files[0].path", "approvals[0].pdf", "approvals[0].evidence",
            "approvals[0].evidence_signature",
        ]
        for (document, member) in zip(documents, members) {
            #expect(try await put() == .invalid(member: member))
            // That another account has it does not help.
            _ = try await book.putDocument(document, for: TestServer.bob)
            #expect(try await put() == .invalid(member: member))
            _ = try await book.putDocument(document, for: TestServer.alice)
        }
        #expect(try await put() == nil)
    }

    @Test("A PDF that cannot be signed, and an attachment that is not its type, are refused, naming the member")
    func spoiledDocuments() async throws {
        let book = try TestServer().book
        let spoiled: [(pdf: [UInt8], attachment: [UInt8], member: String?)] = [
            (Array("%PDF-1.7\n".utf8), Array("text".utf8), "contract.pdf_file_path"),
            (Fixture.pdf(), [0xff, 0xfe, 0x00], "files[0].path"), (Fixture.pdf(), Array("text".utf8), nil),
        ]
        for (pdf, attachment, member) in spoiled {
            for document in [pdf, attachment] { _ = try await book.putDocument(document, for: TestServer.alice) }
            let version = ContractVersion(
                id: Fixture.id(), state: .inProgress, content: try Fixture.content(pdf, attachment: attachment))
            let reason = try await refusal { _ = try await book.put(version, of: TestServer.alice, after: nil) }?.reason
            #expect(reason == member.map { .invalid(member: $0) })
        }
    }

    @Test("A state that does not fit the content or the signature is refused")
    func spoiled() async throws {
        let server = try TestServer()
        try await Fixture.putDocuments(server.book)
        let (complete, incomplete) = (try Fixture.content(), try Fixture.content(firstName: nil))
        let approval = try Fixture.approval()
        func changed(_ change: (inout ContractApproval) -> Void) -> [ContractApproval] {
            var other = approval
            change(&other)
            return [other]
        }
        let two = try Fixture.content(contractors: ["Marie"])
        let cases: [(ContractState, ContractContent, [ContractApproval], String)] = [
            (.incomplete, complete, [], "state"), (.inProgress, incomplete, [], "state"),
            (.toValidate, incomplete, [approval], "state"), (.toValidate, complete, [], "approvals"),
            (.inProgress, complete, [approval], "approvals"), (.abandoned, complete, [approval], "approvals"),
            (.abandoned, incomplete, [approval], "approvals"), (.toValidate, two, [approval], "approvals"),
            (.toValidate, two, [approval, approval], "approvals[1].signatory"),
            (.inProgress, two, changed { $0.signatory = 2 }, "approvals[0].signatory"),
            (.inProgress, two, changed { $0.receipts = ["x"] }, "approvals[0].receipts"),
            (.inProgress, two, changed { $0.pdf = two.pdf.document }, "approvals[0].pdf"),
        ]
        for (state, content, approvals, member) in cases {
            let version = ContractVersion(id: Fixture.id(), state: state, content: content, approvals: approvals)
            let found = try await refusal {
                _ = try await server.book.put(version, of: TestServer.alice, after: nil)
            }
            #expect(found?.reason == .invalid(member: member), "\(state)")
        }
    }

    @Test(
        "Approvals are added one after the other, and none is taken back or changed; then the office puts in no other file"
    )
    func approvals() async throws {
        let check = NotingCheck()
        let book = try TestServer(evidence: check).book
        try await Fixture.putDocuments(book)
        let larger = Fixture.signatureDocuments[0] + [2]
        _ = try await book.putDocument(larger, for: TestServer.alice)
        let (first, id) = (try Fixture.approval(), Fixture.id())
        var second = first
        (second.signatory, second.pdf) = (1, DocumentReference(of: larger))
        let content = try Fixture.content(contractors: ["Marie", "Paul"])
        func put(
            _ approvals: [ContractApproval], _ state: ContractState = .inProgress,
            _ abandonment: ContractAbandonment? = nil
        ) async throws -> Bool {
            let version = ContractVersion(
                id: id, state: state, content: content, approvals: approvals, abandonment: abandonment)
            let revision = try? await book.contract(id).revision
            if case .accepted = try await book.put(version, of: TestServer.alice, after: revision).outcome {
                return true
            }
            return false
        }
        var other = first
        other.approved += 1
        #expect(try await put([first]))
        #expect(try await !put([]))
        #expect(try await !put([other]))
        #expect(try await !put([other, second]))
        #expect(try await put([first, second]))
        let replaced = try await refusal { _ = try await book.replace(id, content, [:]) }
        // The same file changes nothing.
        #expect(replaced == nil)
        let another = try Fixture.content(number: "C-2", contractors: ["Marie", "Paul"])
        #expect(try await refusal { _ = try await book.replace(id, another, [:]) }?.reason == .wrongState)
        let abandonment = ContractAbandonment(signatory: 2, reason: "Too dear")
        #expect(try await !put([first], .abandoned, abandonment))
        #expect(try await put([first, second], .abandoned, abandonment))
        #expect(try await book.contract(id).version.abandonment == abandonment)
        #expect(check.accepted.withLock { $0 } == [0, 1, 2])
    }

    /// Notes how many approvals were taken before.
    private final class NotingCheck: EvidenceChecking {
        let accepted = Mutex<[Int]>([])
        func check(_ documents: SignedDocuments, of version: ContractVersion) {
            accepted.withLock { $0.append(documents.accepted) }
        }
    }

    @Test("The identity of a paired host is no person's own")
    func hostIdentity() async throws {
        let server = try TestServer()
        try await Fixture.putDocuments(server.book)
        var approval = try Fixture.approval()
        approval.isByOwnIdentity = true
        func put() async throws -> Refusal.Reason? {
            let version = ContractVersion(
                id: Fixture.id(), state: .toValidate, content: try Fixture.content(mode: 1), approvals: [approval])
            return try await refusal { _ = try await server.book.put(version, of: TestServer.alice, after: nil) }?
                .reason
        }
        #expect(try await put() == nil)
        approval.certificate = Data(try await server.pairedCertificate())
        #expect(try await put() == .invalid(member: "approvals[0].own_identity"))
    }

    @Test("The contract of another account is none: neither read nor changed")
    func otherAccount() async throws {
        let server = try TestServer()
        let book = server.book
        for account in [TestServer.alice, TestServer.bob] { try await Fixture.putDocuments(book, account) }
        let version = try Fixture.version(.inProgress)
        guard case .accepted(let revision) = try await book.put(version, of: TestServer.alice, after: nil).outcome
        else {
            Issue.record("not accepted")
            return
        }
        for condition in [nil, revision] {
            let answer = try await book.put(version, of: TestServer.bob, after: condition)
            #expect(answer.outcome == .conflict(nil))
        }
        #expect(try await book.changes(of: TestServer.bob, after: nil, limit: 10)?.contracts == [])
        #expect(try await book.contract(version.id).account == TestServer.alice)
    }
}

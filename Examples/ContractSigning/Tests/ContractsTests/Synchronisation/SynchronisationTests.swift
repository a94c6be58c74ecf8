import CertificateProviding
@testable import Contracts
import Foundation
import NIOHTTP1
import ProviderTransport
import QueueWriter
import Synchronization
import Testing

@testable import ContractServer

@Suite(.timeLimit(.minutes(30))) struct SynchronisationTests {
    private static func queue() -> ContractQueue {
        let disk = SimulatedDisk()
        return ContractQueue(storage: disk, documents: disk)
    }

    @Test("a server that forgets every cursor ends the run with an error, and one that forgets one has all read anew")
    func forgottenCursors() async throws {
        let book = try ContractBook(evidence: NoEvidenceCheck())
        for number in 1...5 {
            let file = try await ContractFile.read(SampleFile.bytes(number: number))
            _ = try await book.add(file.content, file.documents, for: "alice@example.com")
        }
        let server = BookServing(book, account: "alice@example.com")
        let queue = Self.queue()
        let error = await #expect(throws: ProviderError.self) {
            try await Synchronisation(queue, with: Self.forgetful(server), limit: 2).run()
        }
        #expect(error?.code == .protocolError)
        #expect(try await Synchronisation(queue, with: server, limit: 2).run().received.count == 3)
        #expect(try queue.list().count == 5)
        try await book.delete(try #require(try queue.list().first).id)
        #expect(try await Synchronisation(queue, with: server, limit: 2).run().removed.count == 1)
        #expect(try queue.list().count == 4)
    }

    @Test("a damaged contract is left out, said, and hinders no other one; a full synchronisation mends it")
    func damaged() async throws {
        let book = try ContractBook(evidence: NoEvidenceCheck())
        let server = BookServing(book, account: "alice@example.com")
        let host = try await QueueHost()
        let damaged = try host.queue.add(host.file)
        _ = try await Synchronisation(host.queue, with: server).run()
        let content = DocumentReference(of: damaged.content.json.bytes)
        try Data("{}".utf8).write(to: URL(filePath: host.queue.path(of: content)))
        let other = try host.queue.add(try await ContractFile.read(SampleFile.bytes(number: 2)))
        for isFull in [false, true] {
            let outcome = try await Synchronisation(host.queue, with: server).run(isFull: isFull)
            #expect(outcome.sent == (isFull ? [] : [other.id]) && outcome.removed.isEmpty && outcome.refused.isEmpty)
            // A full one gets it from the server again.
            #expect(outcome.unreadable.keys.sorted() == (isFull ? [] : [damaged.id]))
        }
        #expect(try host.queue.list().count == 2)
        // A document of a contract that is to be sent.
        let third = try host.queue.add(try await ContractFile.read(SampleFile.bytes(number: 3)))
        let path = host.queue.path(of: third.content.pdf.document)
        let pdf = try Data(contentsOf: URL(filePath: path))
        try FileManager.default.removeItem(atPath: path)
        #expect(try await Synchronisation(host.queue, with: server).run().refused.keys.sorted() == [third.id])
        try pdf.write(to: URL(filePath: path))
        #expect(try await Synchronisation(host.queue, with: server).run().sent == [third.id])
    }

    /// Has forgotten each cursor when it is used.
    private static func forgetful(_ server: BookServing) -> Answering {
        Answering(server: server) { server, cursor, limit throws(ProviderError) in
            cursor == nil ? try await server.changes(after: nil, limit: limit) : nil
        }
    }

    /// A server whose list of changes is another one.
    private struct Answering: ContractServing {
        let server: BookServing
        /// Whether the answer to a version gets lost.
        var losesAnswers = false
        let list: @Sendable (BookServing, String?, Int) async throws(ProviderError) -> ContractChanges?

        func hasDocument(_ document: DocumentReference) async throws(ProviderError) -> Bool {
            try await server.hasDocument(document)
        }
        func putDocument(_ content: [UInt8]) async throws(ProviderError) {
            try await server.putDocument(content)
        }
        func document(_ document: DocumentReference) async throws(ProviderError) -> [UInt8] {
            try await server.document(document)
        }
        func put(
            _ version: ContractVersion, after revision: Int?
        ) async throws(ProviderError) -> PutOutcome {
            let outcome = try await server.put(version, after: revision)
            guard !losesAnswers else { throw ProviderError(.unavailable, "The connection is lost.") }
            return outcome
        }
        func changes(
            after cursor: String?, limit: Int
        ) async throws(ProviderError) -> ContractChanges? {
            try await list(server, cursor, limit)
        }
        func requestCode(_ request: CodeRequest) async throws(ProviderError) {}
        func confirmCode(_ code: String, for request: CodeRequest) async throws(ProviderError) -> String { "" }
    }

    @Test("a list that does not end is an error, and nothing is removed", arguments: ["stuck", "in turn", "empty"])
    func endlessLists(kind: String) async throws {
        let server = BookServing(try ContractBook(evidence: NoEvidenceCheck()), account: "alice@example.com")
        let queue = Self.queue()
        try queue.add(try await ContractFile.read(SampleFile.bytes(isSmall: true)))
        _ = try await Synchronisation(queue, with: server).run()
        let known = try #require(try await server.changes(after: nil, limit: 1)).contracts
        let count = Mutex(0)
        let endless = Answering(server: server) { _, _, _ in
            let number = count.withLock { count in
                count += 1
                return count
            }
            let cursor = kind == "stuck" ? "c" : kind == "in turn" ? "c\(number % 2)" : "c\(number)"
            return ContractChanges(
                account: "alice@example.com", cursor: cursor, hasMore: true, contracts: kind == "empty" ? [] : known)
        }
        for isFull in [false, true] {
            let error = await #expect(throws: ProviderError.self) {
                try await Synchronisation(queue, with: endless).run(isFull: isFull)
            }
            #expect(error?.code == .protocolError && error?.message.contains("does not end") == true)
        }
        #expect(count.withLock { $0 } < 10)
        #expect(try queue.list().count == 1)
    }

    @Test("a signature that the server has had stays here when the server stands on an old backup")
    func oldBackup() async throws {
        let server = BookServing(try ContractBook(evidence: NoEvidenceCheck()), account: "alice@example.com")
        let queue = Self.queue()
        let contract = try queue.add(try await ContractFile.read(SampleFile.bytes(isSmall: true)))
        _ = try await Synchronisation(queue, with: server).run()
        let backup = try #require(try await server.changes(after: nil, limit: 1))
        let approvals = try queue.approve(contract.id).approvals
        #expect(try await Synchronisation(queue, with: server).run().sent == [contract.id])

        let lists: [ContractChanges] = [
            backup, ContractChanges(account: backup.account, cursor: "c", hasMore: false, contracts: []),
        ]
        for list in lists {
            let restored = Answering(server: server) { _, _, _ in list }
            for isFull in [false, true] {
                _ = try await Synchronisation(queue, with: restored).run(isFull: isFull)
                let kept = try #require(try queue.contract(contract.id))
                #expect(kept.approvals == approvals && kept.state == .toValidate)
                for document in approvals.documents { #expect(throws: Never.self) { try queue.content(of: document) } }
            }
            #expect(try queue.contract(contract.id)?.conflict != nil)
            // A person has it sent again.
            try queue.resolve(contract.id, keeping: .mine)
            #expect(try await Synchronisation(queue, with: server).run().conflicts.isEmpty)
        }
    }

    /// A contract that the server has, and that is signed here.
    private static func signed(
        _ queue: ContractQueue, with server: any ContractServing, approved: Date = Date()
    ) async throws -> Contract {
        let contract = try queue.add(try await ContractFile.read(SampleFile.bytes(isSmall: true)))
        _ = try await Synchronisation(queue, with: server).run()
        return try queue.approve(contract.id, approved: approved)
    }

    @Test("a signature that the server has accepted and validated since is no conflict, where its answer was lost")
    func lostAnswer() async throws {
        let book = try ContractBook(evidence: NoEvidenceCheck())
        let server = BookServing(book, account: "alice@example.com")
        let queue = Self.queue()
        let signed = try await Self.signed(queue, with: server)
        for document in signed.version.documents { try await server.putDocument(try queue.content(of: document)) }
        _ = try await server.put(signed.version, after: signed.revision)
        _ = try await book.apply(.validated, to: signed.id)
        let outcome = try await Synchronisation(queue, with: server).run()
        #expect(outcome.conflicts.isEmpty && outcome.sent == [signed.id], "\(outcome)")
        let kept = try #require(try queue.contract(signed.id))
        #expect(kept.state == .validated && !kept.isUnsent && kept.approvals == signed.approvals)
        // Where an earlier run has marked it.
        let known = try #require(try await server.changes(after: nil, limit: 1)?.contracts.first)
        var marked = signed
        marked.conflict = Contract.Conflict(known)
        marked.take(known)
        #expect(marked == kept)
    }

    @Test("what is done here after a lost answer follows it, and is no conflict")
    func lostAnswerAndMore() async throws {
        let server = BookServing(try ContractBook(evidence: NoEvidenceCheck()), account: "alice@example.com")
        let queue = Self.queue()
        let contract = try queue.add(try await ContractFile.read(SampleFile.bytes(isSmall: true)))
        var bad = Answering(server: server) { server, cursor, limit throws(ProviderError) in
            try await server.changes(after: cursor, limit: limit)
        }
        bad.losesAnswers = true
        for _ in 0..<2 {
            await #expect(throws: ProviderError.self) { try await Synchronisation(queue, with: bad).run() }
        }
        let early = try #require(try await server.changes(after: nil, limit: 1)?.contracts.first)
        // Nor where what follows cannot be sent yet.
        var waiting = try #require(try queue.contract(contract.id))
        waiting.version.state = .abandoned
        waiting.take(early)
        #expect(waiting.conflict == nil && waiting.revision == early.revision && waiting.isUnsent)
        try queue.event(.abandoned, on: contract.id)
        let outcome = try await Synchronisation(queue, with: server).run()
        #expect(outcome.conflicts.isEmpty && outcome.sent == [contract.id], "\(outcome)")
        let known = try await server.changes(after: nil, limit: 1)?.contracts.first
        #expect(known?.version.state == .abandoned)
        #expect(try queue.contract(contract.id)?.isUnsent == false)
    }

    @Test(
        "signatures follow each other at two hosts, one after the other; given at once, the later one is a conflict, and kept"
    )
    func twoHosts() async throws {
        let server = BookServing(try ContractBook(evidence: NoEvidenceCheck()), account: "alice@example.com")
        let (one, other) = (Self.queue(), Self.queue())
        func synchronise(_ queue: ContractQueue) async throws -> Synchronisation.Outcome {
            try await Synchronisation(queue, with: server).run()
        }
        let id = try one.add(try await ContractFile.read(SampleFile.bytes(contractors: ["Marie", "Paul"]))).id
        try one.approve(id, "customer")
        for queue in [one, other] { _ = try await synchronise(queue) }
        #expect(try other.contract(id)?.approvals.map(\.signatory) == [0] && other.contract(id)?.state == .inProgress)
        // At once, without a connection.
        let (first, second) = (try one.approve(id, "first").approvals, try other.approve(id, "second").approvals)
        #expect(try await synchronise(one).sent == [id])
        #expect(try await synchronise(other).conflicts == [id])
        #expect(try other.contract(id)?.approvals == second)
        #expect(await failure { try other.resolve(id, keeping: .mine) }?.code == .operationNotAllowed)
        try other.resolve(id, keeping: .server)
        let resolved = try #require(try other.contract(id))
        #expect(resolved.approvals == first && resolved.superseded == [second] && resolved.version.pending == [2])
        for document in second.documents { #expect(try other.hasContent(of: document)) }
        // The last one, upon what the server has.
        let last = try other.approve(id, "last")
        #expect(last.state == .toValidate)
        #expect(try await synchronise(other).sent == [id])
        #expect(try await synchronise(one).received == [id])
        #expect(try one.contract(id)?.approvals == last.approvals)
    }

    @Test("one who declines ends the contract with the reason; what others have signed before stays, everywhere")
    func declined() async throws {
        let server = BookServing(try ContractBook(evidence: NoEvidenceCheck()), account: "alice@example.com")
        let (one, other) = (Self.queue(), Self.queue())
        let id = try one.add(try await ContractFile.read(SampleFile.bytes(contractors: ["Marie"]))).id
        let approvals = try one.approve(id).approvals
        let abandonment = ContractAbandonment(signatory: 1, reason: "Too dear.\nNo.")
        let flawed = await failure {
            try one.event(.abandoned, on: id) {
                $0.version.abandonment = ContractAbandonment(signatory: 7, reason: "x")
            }
        }
        #expect(flawed?.code == .operationNotAllowed)
        try one.event(.abandoned, on: id) { $0.version.abandonment = abandonment }
        #expect(await failure { try one.approve(id, "late") }?.code == .operationNotAllowed)
        for queue in [one, other] { _ = try await Synchronisation(queue, with: server).run() }
        for queue in [one, other] {
            let contract = try #require(try queue.contract(id))
            #expect(contract.state == .abandoned && contract.approvals == approvals && !contract.isUnsent)
            #expect(contract.version.abandonment == abandonment)
        }
    }

    private struct ClockCheck: EvidenceChecking {
        func check(_ documents: SignedDocuments, of version: ContractVersion) throws {
            throw Refusal.invalid("approvals[0].approved", "is ahead of the server's clock")
        }
    }

    @Test("a refusal of a signature from a clock that was ahead says when it can be sent")
    func clockAhead() async throws {
        let server = BookServing(try ContractBook(evidence: ClockCheck()), account: "alice@example.com")
        let queue = Self.queue()
        let approved = Date() + 864_000
        let contract = try await Self.signed(queue, with: server, approved: approved)
        let reason = try await Synchronisation(queue, with: server).run().refused[contract.id]
        #expect(reason?.contains("can be sent from \(approved.formatted(.iso8601)) on") == true, "\(reason ?? "")")
    }

    @Test("a contract of a page that cannot be read is said by each run until it can, and hinders no other one")
    func unreadablePage() async throws {
        let server = BookServing(try ContractBook(evidence: NoEvidenceCheck()), account: "alice@example.com")
        let other = Self.queue()
        for number in 1...3 {
            try other.add(try await ContractFile.read(SampleFile.bytes(number: number, isSmall: true)))
        }
        let ids = try await Synchronisation(other, with: server).run().sent
        let newer = ids[1]
        let limited = Answering(server: server) { server, cursor, limit throws(ProviderError) in
            guard let changes = try await server.changes(after: cursor, limit: limit) else { return nil }
            let contracts = changes.contracts.map { contract in
                var json = contract.version.json
                json.set("revision", .number("\(contract.revision)"))
                if contract.version.id == newer { json.set("state", .string("newState")) }
                return json
            }
            return try ContractChanges(
                json: .object([
                    .init("account", .string(changes.account)), .init("cursor", .string(changes.cursor)),
                    .init("more", .bool(changes.hasMore)), .init("contracts", .array(contracts)),
                ]))
        }
        let queue = Self.queue()
        for isFull in [false, true, false] {
            let outcome = try await Synchronisation(queue, with: limited, limit: 1).run(isFull: isFull)
            #expect(outcome.unreadable[newer]?.contains("state is not a state") == true && outcome.removed.isEmpty)
            #expect(try queue.list().map(\.id).sorted() == [ids[0], ids[2]].sorted())
        }
        let outcome = try await Synchronisation(queue, with: server).run()
        #expect(outcome.received == [newer] && outcome.unreadable.isEmpty)
    }

    @Test("what a server refuses of one contract is about that one, and names the member once")
    func refusals() {
        func refusal(_ status: Int, _ request: String, _ body: String) -> String? {
            HTTPContractServer.contractRefusal(
                HTTPResponse(status: status, headers: [:], body: Array(body.utf8)), of: request, by: "server")?.message
        }
        let body = #"{"error": "a.b: is wrong.", "member": "a.b"}"#
        for status in [400, 413, 422] {
            #expect(refusal(status, "PUT /contracts/1", body) == "server refuses the contract: a.b: is wrong.")
        }
        #expect(
            refusal(422, "PUT /contracts/1", #"{"error": "Wrong.", "member": "a.b"}"#)?.hasSuffix(": a.b: Wrong.")
                == true)
        #expect(refusal(400, "GET /contracts", body) == nil && refusal(500, "PUT /contracts/1", body) == nil)
    }

    @Test("a full run puts the server's version in the place of a damaged one, unless a signature may be lost")
    func repaired() async throws {
        let server = BookServing(try ContractBook(evidence: NoEvidenceCheck()), account: "alice@example.com")
        let host = try await QueueHost()
        let file = try await ContractFile.read(SampleFile.bytes(isSmall: true))
        let contract = try host.queue.add(file)
        _ = try await Synchronisation(host.queue, with: server).run()
        let content = host.queue.path(of: DocumentReference(of: contract.content.json.bytes))
        func damage(_ path: String = content) throws { try Data("{}".utf8).write(to: URL(filePath: path)) }
        try damage()
        #expect(try await Synchronisation(host.queue, with: server).run().unreadable.keys.sorted() == [contract.id])
        let whole = try await Synchronisation(host.queue, with: server).run(isFull: true)
        #expect(whole.unreadable.isEmpty && whole.received == [contract.id])
        #expect(try host.queue.contract(contract.id)?.isUnsent == false)
        // Other values here, which the server does not have, and which are damaged.
        let other = try await ContractFile.read(SampleFile.bytes(number: 2, isSmall: true))
        try host.queue.change(contract.id, storing: Array(other.documents.values)) {
            ($0.version.content, $0.isUnsent) = (other.content, true)
        }
        let changed = host.queue.path(of: DocumentReference(of: other.content.json.bytes))
        try damage(changed)
        #expect(try await Synchronisation(host.queue, with: server).run(isFull: true).received == [contract.id])
        #expect(try host.queue.contract(contract.id)?.content == contract.content)
        // The same with a signature.
        try host.queue.change(contract.id, storing: Array(other.documents.values)) {
            ($0.version.content, $0.isUnsent) = (other.content, true)
        }
        try host.queue.approve(contract.id)
        try damage(changed)
        let kept = try await Synchronisation(host.queue, with: server).run(isFull: true)
        #expect(kept.unreadable.keys.sorted() == [contract.id] && kept.received.isEmpty)
        #expect(try host.queue.unreadable(String(contract.id.prefix(8))) == contract.id)
        let error = #expect(throws: ProviderError.self) { try host.queue.removeAll(evenUnsent: false) }
        #expect(error?.reason == .damaged)
        try host.queue.remove(contract.id, evenUnsent: true)
        #expect(try await Synchronisation(host.queue, with: server).run(isFull: true).received == [contract.id])
    }

    @Test("two processes do not synchronise at the same time")
    func oneAtATime() async throws {
        let queue = Self.queue()
        let server = BookServing(try ContractBook(), account: "alice@example.com")
        let lease = try queue.leaseSynchronisation()
        let error = await #expect(throws: ProviderError.self) {
            try await Synchronisation(queue, with: server).run()
        }
        #expect(error?.code == .operationNotAllowed && error?.reason == .busy)
        withExtendedLifetime(lease) {}
    }

    @Test("a host that the server takes for one of another account keeps its contracts")
    func anotherAccount() async throws {
        let book = try ContractBook()
        let queue = Self.queue()
        try queue.add(try await ContractFile.read(SampleFile.bytes()))
        _ = try await Synchronisation(queue, with: BookServing(book, account: "alice@example.com")).run()
        let error = await #expect(throws: ProviderError.self) {
            try await Synchronisation(queue, with: BookServing(book, account: "bob@example.com")).run(isFull: true)
        }
        #expect(error?.code == .operationNotAllowed && error?.message.contains("bob@example.com") == true)
        try queue.add(try await ContractFile.read(SampleFile.bytes(number: 2)))
        await #expect(throws: ProviderError.self) {
            try await Synchronisation(queue, with: BookServing(book, account: "bob@example.com")).run()
        }
        #expect(try queue.list().count == 2)
        #expect(try await book.list(limit: 9).contracts.map(\.account) == ["alice@example.com"])
    }
}

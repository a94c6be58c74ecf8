import CertificateProviding
import Contracts
import Foundation
import QueueWriter
import Testing

@testable import ContractServer

/// Two hosts, a back office and a server, with lost answers, full disks and clocks that are set back: random steps, after each of which no
/// signature is lost, and at whose end all sides are equal.
@Suite(.timeLimit(.minutes(60))) struct SimulationTests {
    private static let seeds: Range<UInt64> =
        ProcessInfo.processInfo.environment["CERTPROV_TEST_LENGTH"] == "soak" ? 0..<100 : 0..<10

    @Test(
        "no signature is lost or sent twice in random steps, and all sides are equal after a full synchronisation",
        arguments: seeds)
    func steps(seed: UInt64) async throws {
        var world = try World(seed: seed)
        for step in 0..<500 {
            try await world.step()
            try world.check("step \(step) of seed \(seed)")
        }
        try await world.end("seed \(seed)")
        #expect(world.signed.count > 10, "the steps of seed \(seed) sign too little to show anything")
    }
}

private struct World {
    private struct Host {
        let name: String
        let disk: SimulatedDisk
        let queue: ContractQueue
        let server: BadConnection
    }
    /// A signature that was made at a host.
    struct Made {
        let host: Int
        let contract: String
        /// The last one is this one.
        let approvals: [ContractApproval]
        var name: String { "\(contract) \(approvals.last?.pdf.sha256 ?? "")" }
        /// Whether a person has given it up, or the server had it once.
        var isSettled = false
    }

    private var random: Randomness
    private let book: ContractBook
    private var hosts: [Host] = []
    private(set) var signed: [Made] = []
    private var number = 0
    private let account = "alice@example.com"

    init(seed: UInt64) throws {
        random = Randomness(seed)
        book = try ContractBook(evidence: NoEvidenceCheck())
        for name in ["one", "two"] {
            let disk = SimulatedDisk()
            let queue = ContractQueue(storage: disk, documents: disk) {
                // The clock is set back and forth.
                Date(timeIntervalSince1970: .random(in: 1_600_000_000...1_900_000_000))
            }
            hosts.append(
                Host(
                    name: name, disk: disk, queue: queue,
                    server: BadConnection(BookServing(book, account: account), seed: seed &+ UInt64(hosts.count))))
        }
    }

    // MARK: - Steps

    mutating func step() async throws {
        let at = Int.random(in: 0..<hosts.count, using: &random)
        let host = hosts[at]
        host.server.set(badness: random.chance(0.5) ? 0.15 : 0)
        host.disk.fill(after: random.chance(0.3) ? Int.random(in: 0..<6, using: &random) : nil)
        defer { host.disk.fill(after: nil) }
        do {
            switch Int.random(in: 0..<13, using: &random) {
            case 0, 1:
                // Each step reads them all.
                guard try host.queue.list().count < 6 else { break }
                try host.queue.add(try await file(isComplete: random.chance(0.7)))
            case 2: try fill(host)
            case 3, 4, 5: try sign(at)
            case 6: if random.chance(0.3) { try abandon(host) }
            case 7, 8, 9:
                _ = try await Synchronisation(host.queue, with: host.server, limit: 3).run(isFull: random.chance(0.2))
            case 10: try resolve(at)
            default: try await office()
            }
        } catch let error as ProviderError {
            // What the faults bring about, and steps that the state does not permit.
            let expected: Set<ProviderError.Code> = [.unavailable, .storeWriteFailed, .operationNotAllowed]
            guard expected.contains(error.code) else { throw error }
        }
    }

    private mutating func file(isComplete: Bool, isShared: Bool = true) async throws -> ContractFile {
        number += 1
        return try await ContractFile.read(
            SampleFile.bytes(
                number: number, isComplete: isComplete, isShared: isShared, isSmall: true,
                contractors: random.chance(0.5) ? ["Marie"] : []))
    }

    private mutating func pick(_ host: Host, _ state: ContractState) throws -> Contract? {
        try host.queue.list().filter { $0.state == state && $0.conflict == nil }.randomElement(using: &random)
    }

    private mutating func fill(_ host: Host) throws {
        guard let contract = try pick(host, .incomplete) else { return }
        let content = try contract.content.filling([
            "delivery_date": "2027-01-\(Int.random(in: 10...28, using: &random))"
        ])
        try host.queue.event(.filled(isComplete: content.missing.isEmpty), on: contract.id) {
            $0.version.content = content
        }
    }

    private mutating func sign(_ at: Int) throws {
        guard let contract = try pick(hosts[at], .inProgress) else { return }
        let approvals = try hosts[at].queue.approve(contract.id, "\(random.next())").approvals
        signed.append(Made(host: at, contract: contract.id, approvals: approvals))
    }

    private mutating func abandon(_ host: Host) throws {
        guard let contract = try pick(host, random.chance(0.5) ? .incomplete : .inProgress) else { return }
        try host.queue.event(.abandoned, on: contract.id)
    }

    private mutating func resolve(_ at: Int, keeping side: ConflictSide? = nil) throws {
        let conflicts = try hosts[at].queue.list().filter { $0.conflict != nil }
        guard let contract = conflicts.randomElement(using: &random) else { return }
        var side = side ?? (random.chance(0.5) ? .mine : .server)
        if side == .mine, contract.conflict?.canBeSent(contract.version) == false {
            #expect(throws: ProviderError.self) { try hosts[at].queue.resolve(contract.id, keeping: .mine) }
            side = .server
        }
        let resolved = try hosts[at].queue.resolve(contract.id, keeping: side)
        guard resolved == nil else { return }
        for index in signed.indices where signed[index].contract == contract.id && signed[index].host == at {
            signed[index].isSettled = true
        }
    }

    private mutating func office() async throws {
        let contracts = try await book.list(limit: 1000).contracts
        guard random.chance(0.7) || contracts.count > 8, let contract = contracts.randomElement(using: &random) else {
            let file = try await file(isComplete: random.chance(0.7), isShared: random.chance(0.8))
            _ = try await book.add(file.content, file.documents, for: account)
            return
        }
        let id = contract.version.id
        do {
            switch Int.random(in: 0..<8, using: &random) {
            case 0, 1:
                let file = try await file(isComplete: random.chance(0.7))
                _ = try await book.replace(id, file.content, file.documents)
            case 2, 3: _ = try await book.apply(.validated, to: id)
            case 4: _ = try await book.apply(.archived, to: id)
            case 5: _ = try await book.apply(.abandoned, to: id)
            case 6: try await book.delete(id)
            default: try await book.removeUnreferencedDocuments(unseenSince: Date.distantPast)
            }
        } catch is Refusal {}
    }

    // MARK: - Promises

    /// Each signature that was made is at its host, with its documents, or the server has accepted it.
    mutating func check(_ place: String) throws {
        let accepted = hosts.map(\.server.accepted)
        for index in signed.indices where !signed[index].isSettled {
            let made = signed[index]
            if hosts.contains(where: { $0.server.had.contains(made.name) }) {
                signed[index].isSettled = true
                continue
            }
            let contract = try hosts[made.host].queue.contract(made.contract)
            let kept = [contract?.approvals ?? []] + (contract?.superseded ?? [])
            try #require(
                kept.contains { $0.starts(with: made.approvals) }, "\(place): the signature of \(made.contract) is lost"
            )
            for document in made.approvals.flatMap({ [$0.evidence, $0.evidenceSignature] }) {
                #expect(throws: Never.self, "\(place)") { try hosts[made.host].queue.content(of: document) }
            }
        }
        var all: [String: Set<Int>] = [:]
        for one in accepted { all.merge(one) { $0.union($1) } }
        for (name, revisions) in all {
            #expect(revisions.count == 1, "\(place): \(name) was accepted twice, as \(revisions)")
        }
    }

    /// Without faults, and after the decisions about conflicts, all sides are equal.
    mutating func end(_ place: String) async throws {
        for round in 0..<6 {
            for at in hosts.indices {
                hosts[at].server.set(badness: 0)
                while try hosts[at].queue.list().contains(where: { $0.conflict != nil }) {
                    try resolve(at, keeping: round < 2 ? nil : .server)
                }
                _ = try await Synchronisation(hosts[at].queue, with: hosts[at].server, limit: 3).run(isFull: true)
            }
        }
        try check(place)
        let atServer = try await book.list(limit: 10_000).contracts.filter(\.isShared)
        let expected = Dictionary(uniqueKeysWithValues: atServer.map { ($0.version.id, $0.version) })
        for host in hosts {
            let contracts = try host.queue.list()
            let here = Dictionary(uniqueKeysWithValues: contracts.map { ($0.id, $0.version) })
            #expect(here == expected, "\(place): host \(host.name) differs from the server")
            #expect(!contracts.contains { $0.isUnsent || $0.conflict != nil }, "\(place)")
            for document in Set(contracts.flatMap(\.version.documents)) {
                #expect(throws: Never.self, "\(place)") { try host.queue.content(of: document) }
            }
        }
    }
}

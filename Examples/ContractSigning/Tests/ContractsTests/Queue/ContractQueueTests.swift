import CertificateProviding
import Contracts
import Foundation
import QueueWriter
import Testing

@Suite struct ContractQueueTests {
    @Test("a contract comes out of the queue as it went in, and goes through its states")
    func contract() async throws {
        let host = try await QueueHost()
        let queue = host.queue
        #expect(try queue.list().isEmpty)
        let added = try queue.add(host.file)
        #expect(added.state == .incomplete && added.isUnsent && added.revision == nil && ContractVersion.isID(added.id))
        #expect(try queue.contract(added.id) == added)
        #expect(try queue.list() == [added])
        #expect(try queue.content(of: added.content.pdf.document) == SellSignFixture.pdf())
        let early = await failure { try host.sign(added.id) }
        #expect(early?.code == .operationNotAllowed && early?.message.contains("incomplete") == true)
        try queue.change(added.id) { $0.isUnsent = false }
        let filled = try host.fill(added.id)
        #expect(filled.state == .inProgress && filled.isUnsent)
        let signed = try host.sign(added.id)
        #expect(signed.state == .toValidate && signed.hasUnsentSignature)
        #expect(try queue.contract(added.id) == signed)
        #expect(await failure { try queue.event(.abandoned, on: added.id) }?.code == .operationNotAllowed)
        #expect(await failure { try host.sign(added.id) }?.code == .operationNotAllowed)
        var changed = signed
        changed.conflict = Contract.Conflict(ServerContract(revision: 7, version: filled.version))
        changed.superseded = [signed.approvals]
        try queue.put(changed)
        #expect(try queue.contract(added.id) == changed)
        try queue.change(added.id) { $0.conflict = Contract.Conflict(nil) }
        #expect(try queue.contract(added.id)?.conflict == Contract.Conflict(nil))
        try host.requireWhole("at the end")
    }

    @Test("a signature that the server does not have is not lost by a change or a removal")
    func unsentSignature() async throws {
        let host = try await QueueHost()
        let queue = host.queue
        let contract = try host.fill(queue.add(host.file).id)
        let signed = try host.sign(contract.id)
        #expect(await failure { try queue.remove(signed.id) }?.code == .operationNotAllowed)
        #expect(await failure { try queue.put(contract) }?.code == .operationNotAllowed)
        let dropped = await failure {
            try queue.change(signed.id) { ($0.version.approvals, $0.version.state) = ([], .abandoned) }
        }
        #expect(dropped?.code == .operationNotAllowed)
        let state = await failure { try queue.change(signed.id) { $0.version.state = .abandoned } }
        #expect(state?.code == .operationNotAllowed)
        #expect(try queue.contract(signed.id) == signed)
        let made = signed.approvals
        try queue.change(signed.id) { contract in
            (contract.version.approvals, contract.version.state) = ([], .abandoned)
            contract.superseded = [made]
        }
        try queue.removeUnreferenced()
        for document in made.documents { #expect(try queue.hasContent(of: document)) }
        let other = try host.sign(host.fill(queue.add(host.file).id).id)
        try queue.remove(other.id, evenUnsent: true)
        #expect(try queue.contract(other.id) == nil)
        let sent = try host.sign(host.fill(queue.add(host.file).id).id)
        try queue.change(sent.id) { ($0.isUnsent, $0.revision) = (false, 1) }
        try queue.remove(sent.id)
        #expect(try queue.list().count == 1)
    }

    @Test("contracts are found by the beginning of their id, and by their number")
    func find() async throws {
        let host = try await QueueHost()
        let queue = host.queue
        let one = try queue.add(host.file)
        let numbered = try await ContractFile.read(SellSignFixture.file(["contract.contract_id": .number("4711")]))
        let other = try queue.add(numbered)
        for text in [one.id, one.id.uppercased(), String(one.id.prefix(20))] { #expect(try queue.find(text) == one) }
        #expect(try queue.find("4711") == other)
        for text in ["", "zzz", "../state", "state", one.id + "0"] {
            #expect(await failure { try queue.find(text) }?.code == .notFound, "\(text)")
        }
        try queue.add(numbered)
        #expect(await failure { try queue.find("4711") }?.code == .malformedData)
        for id in ["../../x", "state", "", one.id.uppercased()] {
            #expect(await failure { try queue.change(id) { _ in } }?.code == .notFound)
            #expect(try queue.contract(id) == nil)
        }
    }

    @Test("nothing is lost while the clock is set back")
    func clock() async throws {
        let time = TestClock()
        let host = try await QueueHost { time.now }
        var ids: [String] = []
        for offset in [0.0, -1e9, -3e9, 0, 1e9, 5e-7] {
            time.now = Date(timeIntervalSince1970: 2_000_000_000 + offset)
            ids.append(try host.queue.add(host.file).id)
        }
        let list = try host.queue.list()
        #expect(Set(list.map(\.id)) == Set(ids))
        #expect(list.map(\.received) == list.map(\.received).sorted())
        for id in ids { _ = try host.sign(host.fill(id).id) }
        try host.requireWhole("at the end")
    }

    @Test("a contract whose documents are not here is not stored")
    func missingDocuments() async throws {
        let host = try await QueueHost()
        let version = ContractVersion(
            id: UUID().uuidString.lowercased(), state: .incomplete, content: host.file.content)
        let contract = Contract(version: version, received: Date(), revision: 1, isUnsent: false)
        #expect(await failure { try host.queue.put(contract) }?.code == .storeWriteFailed)
        let partly = await failure { try host.queue.put(contract, storing: [SellSignFixture.png]) }
        #expect(partly?.code == .storeWriteFailed)
        #expect(try host.queue.contract(version.id) == nil)
        try host.queue.put(contract, storing: [SellSignFixture.png, SellSignFixture.pdf()])
        #expect(try host.queue.contract(version.id) == contract)
    }

    @Test("the state is kept, and one holds the synchronisation and the lease of a contract")
    func state() async throws {
        let host = try await QueueHost()
        let queue = host.queue
        #expect(try queue.state() == QueueState())
        try queue.changeState { $0.account = "alice@example.com" }
        try queue.changeState { $0.pendingCallbacks.append(.init(id: "1", url: "myapp://success")) }
        let refused = await failure {
            try queue.changeState { state throws(ProviderError) in
                state.account = nil
                throw ProviderError(.userCancelled, "No.")
            }
        }
        #expect(refused?.code == .userCancelled)
        let state = try queue.state()
        #expect(state.account == "alice@example.com" && state.pendingCallbacks.count == 1)
        let contract = try queue.add(host.file)
        let (synchronisation, signing) = (try queue.leaseSynchronisation(), try queue.lease(contract.id))
        #expect(synchronisation != nil && signing != nil)
        #expect(try queue.leaseSynchronisation() == nil)
        #expect(try queue.lease(contract.id) == nil)
        withExtendedLifetime((synchronisation, signing)) {}
        try queue.removeAll()
        #expect(try queue.state() == QueueState())
        #expect(try queue.list().isEmpty)
    }
}

extension QueueHost {
    /// Fills in what is missing.
    func fill(_ id: String) throws -> Contract {
        try queue.event(.filled(isComplete: true), on: id) { contract throws(ProviderError) in
            contract.version.content = try contract.content.filling(["delivery_date": "2027-01-15"])
        }.0
    }

    /// Signs, as far as the queue is concerned.
    func sign(_ id: String) throws -> Contract {
        let count = try queue.contract(id)?.content.signatories.count ?? 0
        for number in 1..<max(1, count) { try queue.approve(id, "\(number)") }
        return try queue.approve(id)
    }
}

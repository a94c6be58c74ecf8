public import CertificateProviding
public import Contracts
public import FoundationEssentials
import Glibc
import IdentityStore
import Synchronization

/// Uses a queue as another process, for tests: `QueueWriter OPERATION DIRECTORY NUMBER`. The directory has `file.sellsign`.
@main
public struct QueueWriter {
    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 4, let number = Int(arguments[3]) else { exit(64) }
        let directory = arguments[2]
        let data = try Data(contentsOf: URL(filePath: directory + "/file.sellsign"))
        let file = try await ContractFile.read(Array(data))
        switch arguments[1] {
        case "killed":
            let steps = Mutex(0)
            let queue = queue(in: directory) { _ throws(ProviderError) in
                if steps.withLock({
                    $0 += 1; return $0
                }) == number {
                    kill(getpid(), SIGKILL)
                }
            }
            try use(queue, file)
        case "adding":
            // Until it is killed.
            let queue = queue(in: directory)
            while true { say(try queue.add(file).id) }
        case "counting":
            let queue = queue(in: directory)
            for contract in try queue.list() where contract.revision != nil {
                for _ in 0..<number {
                    try queue.change(contract.id) { $0.revision = ($0.revision ?? 0) + 1 }
                    let own = try queue.add(file)
                    try queue.remove(own.id)
                    try queue.removeUnreferenced()
                }
            }
        case "filling": try await fill(directory, file)
        default: exit(64)
        }
    }

    /// A queue in a directory.
    public static func queue(
        in directory: String, _ step: @escaping StorageStep = { _ throws(ProviderError) in }
    ) -> ContractQueue {
        let storage = IdentityStore(path: directory + "/store").storage(for: ProviderID("contracts_"))
        return ContractQueue(
            storage: SteppedStorage(storage, step),
            documents: SteppedDocuments(DocumentDirectory(path: directory + "/documents"), step))
    }

    /// Everything that changes a queue.
    public static func use(_ queue: ContractQueue, _ file: ContractFile) throws(ProviderError) {
        let contract = try queue.add(file)
        try queue.change(contract.id) { contract throws(ProviderError) in
            contract.version.content = try contract.content.filling(["delivery_date": "2027-01-15"])
            contract.version.state = .inProgress
        }
        while let next = try queue.contract(contract.id), !next.version.pending.isEmpty {
            try queue.approve(contract.id, "\(next.approvals.count)")
        }
        try queue.changeState { $0.cursor = contract.id }
        let other = try queue.add(file)
        try queue.remove(other.id)
        try queue.removeUnreferenced()
    }

    /// Fills a small disk, and goes on when there is room again.
    private static func fill(_ directory: String, _ file: ContractFile) async throws {
        let queue = queue(in: directory)
        var before: [Contract] = []
        var json = file.content.json
        var error: ProviderError?
        for index in 0..<10_000 where error == nil {
            json.set("filling", .string(String(repeating: "x", count: 10_000) + "\(index)"))
            do throws(ProviderError) {
                let content = try ContractContent(json)
                try queue.put(
                    Contract(
                        version: ContractVersion(
                            id: UUID().uuidString.lowercased(), state: .incomplete, content: content),
                        received: Date(timeIntervalSince1970: Double(index)), revision: nil, isUnsent: true),
                    storing: Array(file.documents.values))
                before = try queue.list()
            } catch let failure { error = failure }
        }
        guard let error, error.code == .storeWriteFailed, !before.isEmpty else { fail("not full: \(before.count)") }
        guard try queue.list() == before else { fail("a write that failed changed something") }
        let first = before[0]
        // There may be room for a change; then it is made.
        let isChanged = (try? queue.change(first.id) { $0.revision = 9 }) != nil
        guard (try queue.contract(first.id)?.revision == 9) == isChanged else { fail("a change is half made") }
        for contract in before.prefix(before.count / 2) { try queue.remove(contract.id) }
        guard try queue.removeUnreferenced() else { fail("not removed") }
        try queue.add(file)
        guard try queue.list().count == before.count - before.count / 2 + 1 else { fail("not as many") }
        say("full after \(before.count)")
    }

    /// Writes a line, at once.
    private static func say(_ text: String) {
        let line = Array("\(text)\n".utf8)
        _ = line.withUnsafeBytes { write(1, $0.baseAddress, $0.count) }
    }

    private static func fail(_ text: String) -> Never {
        say(text)
        exit(1)
    }
}

extension ContractQueue {
    /// Has the next signatory of a contract approve, as far as the queue is concerned.
    ///
    /// - Parameter name: Makes the documents other ones.
    @discardableResult
    public func approve(
        _ id: String, _ name: String = "", approved: Date = Date()
    ) throws(ProviderError) -> Contract {
        guard let contract = try contract(id) else { throw ProviderError(.notFound, "There is no contract \(id).") }
        let version = contract.version
        let pdf = Array("PDF \(name) of \(id)".utf8) + [UInt8](repeating: 0, count: version.pdf.size)
        let parts = [pdf] + ["evidence", "signature"].map { Array("\($0) \(name) of \(id)".utf8) }
        let documents = parts.map { DocumentReference(of: $0) }
        let isLast = version.approvals.count + 1 == version.content.signatories.count
        return try event(.signed(isLast: isLast), on: id, storing: parts) { contract in
            contract.version.approvals.append(
                ContractApproval(
                    signatory: version.pending.first ?? 0, approved: approved, certificate: Data(), pdf: documents[0],
                    evidence: documents[1], evidenceSignature: documents[2]))
        }.0
    }
}

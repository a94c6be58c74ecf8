import CertificateProviding
import Contracts
import Foundation
import Glibc
import QueueWriter
import Synchronization
import Testing

/// A clock that is turned by hand.
final class TestClock: Sendable {
    private let time = Mutex(Date(timeIntervalSince1970: 2_000_000_000))

    var now: Date {
        get { time.withLock { $0 } }
        set { time.withLock { $0 = newValue } }
    }
}

@Suite struct DamagedQueueTests {
    @Test("a damaged document is told, and is whole again after it is stored again")
    func document() async throws {
        let host = try await QueueHost()
        let contract = try host.queue.add(host.file)
        let document = contract.content.pdf.document
        let path = host.queue.path(of: document)
        let pdf = SellSignFixture.pdf()
        for content in [Array(pdf.dropLast()), Array(pdf.reversed()), []] {
            try Data(content).write(to: URL(filePath: path))
            let error = await failure { try host.queue.content(of: document) }
            #expect(error?.code == .storeReadFailed && error?.reason == .damaged)
            let isWhole = try host.queue.hasContent(of: document)
            #expect(!isWhole)
            try host.queue.put(contract, storing: [pdf])
            #expect(try host.queue.content(of: document) == pdf)
        }
        try FileManager.default.removeItem(atPath: path)
        #expect(await failure { try host.queue.content(of: document) }?.reason == .damaged)
        try FileManager.default.createSymbolicLink(atPath: path, withDestinationPath: "/etc/passwd")
        #expect(await failure { try host.queue.content(of: document) }?.reason == .damaged)
        let isThere = try host.queue.hasContent(of: document)
        #expect(!isThere)
        // Its content is a document too: without it the contract cannot be read, and is not changed.
        let content = DocumentReference(of: contract.content.json.bytes)
        try Data("{}".utf8).write(to: URL(filePath: host.queue.path(of: content)))
        #expect(await failure { try host.queue.contract(contract.id) }?.reason == .damaged)
        #expect(await failure { try host.queue.put(contract) }?.reason == .damaged)
        #expect(await failure { try host.queue.remove(contract.id) }?.reason == .damaged)
        #expect(try host.queue.entries().map(\.id) == [contract.id])
    }

    @Test("a damaged record, and one of a newer version, is told, and hinders neither the others nor their documents")
    func record() async throws {
        let host = try await QueueHost()
        let queue = host.queue
        let whole = try queue.add(host.file)
        let newer = try queue.add(host.file)
        let damaged = try queue.add(host.file)
        try host.storage.updateRecord(named: "contract-\(newer.id)") { record in
            guard let record else { return nil }
            let text = record.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
            return SecretBytes(utf8: text.replacing(#""version":1"#, with: #""version":2"#))
        }
        let path = host.directory.path + "/store/records/contracts_/contract-\(damaged.id)"
        var bytes = Array(try Data(contentsOf: URL(filePath: path)))
        bytes[bytes.count / 2] ^= 1
        try Data(bytes).write(to: URL(filePath: path))
        let entries = try queue.entries()
        #expect(entries.count == 3)
        #expect(try entries.first?.contract.get() == whole)
        #expect(await failure { try queue.list() }?.code == .storeReadFailed)
        #expect(try queue.contract(whole.id) == whole)
        #expect(try queue.find(whole.id) == whole)
        let version = await failure { try queue.contract(newer.id) }
        #expect(version?.code == .storeReadFailed && version?.message.contains("newer contracts") == true)
        for id in [newer.id, damaged.id] {
            #expect(await failure { try queue.change(id) { _ in } }?.code == .storeReadFailed)
            #expect(await failure { try queue.remove(id) }?.code == .storeReadFailed)
            let version = ContractVersion(id: id, state: .incomplete, content: whole.content)
            let other = Contract(version: version, received: Date(), revision: nil, isUnsent: true)
            #expect(await failure { try queue.put(other) }?.code == .storeReadFailed)
        }
        let documents = try host.documents.all()
        #expect(await failure { try queue.removeUnreferenced() }?.code == .storeReadFailed)
        #expect(try host.documents.all() == documents)
        try queue.removeAll()
        #expect(try queue.list().isEmpty)
        #expect(try host.documents.all().isEmpty)
    }

    @Test("a fault at any step of the storage changes a contract whole or not at all")
    func faults() async throws {
        var step = 0
        while step < 200 {
            step += 1
            let host = try await QueueHost()
            let count = Mutex(0)
            let faulty = step
            let queue = QueueWriter.queue(in: host.directory.path) { _ throws(ProviderError) in
                let isNow = count.withLock { count in
                    count += 1
                    return count == faulty
                }
                if isNow { throw ProviderError(.storeWriteFailed, "No space.") }
            }
            let error = await failure { try QueueWriter.use(queue, host.file) }
            #expect(error == nil || error?.code == .storeWriteFailed)
            try host.requireWhole("step \(step)")
            if error == nil { break }
        }
        #expect(step > 30 && step < 200)
    }

    @Test("documents are removed only while nothing else uses the queue")
    func sweep() async throws {
        let host = try await QueueHost()
        let isRemoved = try host.documents.whileKept { () throws(ProviderError) in
            _ = try host.documents.write([1])
            return try host.queue.removeUnreferenced()
        }
        #expect(!isRemoved)
        #expect(try host.documents.contains(DocumentReference(of: [1])))
        let isRemovedNow = try host.queue.removeUnreferenced()
        #expect(isRemovedNow)
        #expect(try host.documents.all().isEmpty)
        let impatient = ContractQueue(
            storage: host.storage, documents: DocumentDirectory(path: host.documents.path, timeout: .milliseconds(20)))
        let file = host.file
        let reason = try host.documents.whileAlone { () throws(ProviderError) in
            do throws(ProviderError) {
                try impatient.add(file)
                return nil as ProviderError.Reason?
            } catch { return error.reason }
        }
        #expect(reason == .some(.busy))
        #expect(try host.queue.list().isEmpty)
    }

    @Test("files and the directory are the user's alone")
    func modes() async throws {
        let host = try await QueueHost()
        let contract = try host.queue.add(host.file)
        func mode(_ path: String) throws -> Int? {
            try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
        }
        #expect(try mode(host.documents.path) == 0o700)
        #expect(try mode(host.queue.path(of: contract.content.pdf.document)) == 0o600)
        try FileManager.default.setAttributes([.posixPermissions: 0o777], ofItemAtPath: host.documents.path)
        #expect(await failure { try host.queue.content(of: contract.content.pdf.document) }?.code == .storeReadFailed)
        #expect(await failure { try host.queue.add(host.file) }?.code == .storeReadFailed)
        // Only root can give it away.
        guard chown(host.documents.path, 12_345, 12_345) == 0 else { return }
        let error = await failure { try host.queue.add(host.file) }
        #expect(error?.message.contains("12345") == true && error?.message.contains("chmod") == false)
    }
}

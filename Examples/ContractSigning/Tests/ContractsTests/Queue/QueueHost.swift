import CertificateProviding
import Contracts
import Foundation
import IdentityStore
import QueueWriter
import Testing

/// A directory with a queue on disk.
final class QueueHost {
    let directory: URL
    let storage: any IdentityStorage
    let documents: DocumentDirectory
    let queue: ContractQueue
    let file: ContractFile

    /// - Parameter now: The clock of ``queue``.
    init(now: @escaping @Sendable () -> Date = { Date() }) async throws {
        directory = FileManager.default.temporaryDirectory.appending(path: "queue-\(UUID().uuidString)")
        try FileManager.default.createDirectory(
            at: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        let bytes = try Self.fileBytes
        try Data(bytes).write(to: directory.appending(path: "file.sellsign"))
        file = try await ContractFile.read(bytes)
        storage = IdentityStore(path: directory.path + "/store").storage(for: ProviderID("contracts_"))
        documents = DocumentDirectory(path: directory.path + "/documents")
        queue = ContractQueue(storage: storage, documents: documents, now: now)
    }

    deinit { try? FileManager.default.removeItem(at: directory) }

    /// A contract with a value that is missing.
    static var fileBytes: [UInt8] {
        get throws {
            try SellSignFixture.file([
                "contract_properties[9]": .object([
                    .init("key", .string("delivery_date")), .init("to_fill_by_user", .number("1")),
                ])
            ])
        }
    }

    /// Checks that every contract is whole, also after the documents that none names are removed.
    func requireWhole(_ note: Comment) throws {
        for _ in 0..<2 {
            var named: Set<String> = []
            for contract in try queue.list() {
                for document in contract.version.documents {
                    #expect(try queue.content(of: document).count == document.size, note)
                    named.insert(document.sha256)
                }
                #expect(contract.version.flaw == nil, note)
            }
            let all = Set(try documents.all())
            #expect(named.isSubset(of: all), note)
            let isDone = try queue.removeUnreferenced()
            #expect(isDone, note)
        }
        let rest = try FileManager.default.contentsOfDirectory(atPath: documents.path).filter { $0.hasPrefix(".new-") }
        #expect(rest.isEmpty, note)
    }

    /// The program `QueueWriter` beside the tests.
    static let writer: URL? = {
        let arguments = CommandLine.arguments
        var places = [
            arguments[0], (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? "",
        ]
        if let index = arguments.firstIndex(of: "--test-bundle-path"), index + 1 < arguments.count {
            places.append(arguments[index + 1])
        }
        return places.map { URL(filePath: $0).deletingLastPathComponent().appending(path: "QueueWriter") }
            .first { FileManager.default.isExecutableFile(atPath: $0.path) }
    }()

    /// Starts `QueueWriter`.
    ///
    /// - Parameter prefix: A command that runs it.
    func start(_ operation: String, _ number: Int = 0, prefix: [String] = []) throws -> (Process, FileHandle) {
        let writer = try #require(Self.writer, "QueueWriter is not beside the tests")
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/env")
        process.arguments = prefix + [writer.path, operation, directory.path, "\(number)"]
        let pipe = Pipe()
        process.standardOutput = pipe
        try process.run()
        return (process, pipe.fileHandleForReading)
    }
}

import CertificateProviding
import Crypto
import Foundation
import Glibc
import TestSupport
import Testing

@testable import IdentityStore
@testable import SigningRequests

/// A state directory of requests.
struct RequestsFixture {
    let directory: TemporaryDirectory
    var path: String { directory["requests"] }
    var journalFile: String { "requests/journal.jsonl" }

    init() throws { directory = try TemporaryDirectory() }

    func journal(
        at time: Date = Self.now, files: FileSystem = .system, limits: RequestJournal.Limits = .init()
    ) -> RequestJournal {
        RequestJournal(directory: path, now: { time }, files: files, limits: limits)
    }

    /// The files of the journal, and their sizes.
    func journalFiles() throws -> [String: Int] {
        let names = try FileManager.default.contentsOfDirectory(atPath: path).filter { $0.hasPrefix("journal") }
        return try Dictionary(uniqueKeysWithValues: names.map { ($0, try directory.read("requests/" + $0).count) })
    }

    /// Some second.
    static let now = Date(timeIntervalSince1970: 1_795_863_600)

    func lines() throws -> [String] {
        String(decoding: try directory.read(journalFile), as: UTF8.self)
            .split(separator: "\n", omittingEmptySubsequences: false).dropLast().map(String.init)
    }

    /// The file of which nothing may be there.
    func bytes() -> [UInt8]? { try? directory.read(journalFile) }

    static func digest(_ data: [UInt8]) -> String { Array(SHA256.hash(data: data)).hexEncoded }

    static func entry(
        _ data: String = "data", client: Int = 1, at time: Date = now, _ outcome: JournalEntry.Outcome = .signed,
        approver: String? = "queue", requestID: String? = nil, peer: String = "pid 1"
    ) -> JournalEntry {
        JournalEntry(
            time: time, client: client, requestID: requestID, operation: .signPDF, digest: digest(Array(data.utf8)),
            outcome: outcome, approver: approver, fingerprint: "00ff", peer: peer)
    }

    static func question(_ data: [UInt8], client: Int = 1, text: String = "text") -> SigningQuestion {
        SigningQuestion(
            id: "", operation: .signPDF, client: client, clientName: "Shop", serviceName: text, documentName: text,
            requestID: text, size: data.count, digest: digest(data), signer: "CN=signer", fingerprint: "00ff",
            signedBefore: nil, peer: text, deadline: Date().addingTimeInterval(600))
    }

    /// Another process with this state.
    func start(
        _ arguments: String..., through program: [String] = [], with variables: [String: String] = [:]
    ) throws -> Subprocess {
        try Subprocess(
            program + [Self.program, path] + arguments, environment: Subprocess.environment.merging(variables) { $1 },
            in: nil, seconds: 600)
    }

    static let program = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
        .appending(path: "RequestWaiter").path

    /// A disk with a call that fails.
    static func disk(
        failing call: String, at position: Int, with code: Int32
    ) -> FileSystem {
        let count = Counter()
        @Sendable func fails(_ name: String) -> Bool {
            guard name == call, count.next() == position else { return false }
            errno = code
            return true
        }
        let real = FileSystem.system
        var files = real
        files.create = { fails("create") ? -1 : real.create($0, $1, $2) }
        files.write = { descriptor, bytes in
            guard fails("write") else { return real.write(descriptor, bytes) }
            // A part of it got through.
            _ = real.write(descriptor, UnsafeRawBufferPointer(rebasing: bytes.prefix(5)))
            errno = code
            return -1
        }
        files.changeMode = { fails("changeMode") ? -1 : real.changeMode($0, $1) }
        files.synchronize = { fails("synchronize") ? -1 : real.synchronize($0) }
        files.rename = { fails("rename") ? -1 : real.rename($0, $1, $2) }
        files.makeDirectory = { fails("makeDirectory") ? -1 : real.makeDirectory($0, $1, $2) }
        return files
    }

    static let calls = ["create", "write", "changeMode", "synchronize", "rename", "makeDirectory"]

    private final class Counter: @unchecked Sendable {
        // Each disk is used by one thread.
        private var value = 0
        func next() -> Int {
            value += 1
            return value
        }
    }
}

/// Returns the error that `body` throws.
func failure(
    _ location: SourceLocation = #_sourceLocation, _ body: () throws -> Void
) throws -> ProviderError {
    do { try body() } catch { return try #require(error as? ProviderError, sourceLocation: location) }
    Issue.record("nothing was thrown", sourceLocation: location)
    throw CancellationError()
}

import CertificateProviding
import Foundation
import Logging
import Synchronization
import Testing

@testable import RelyingParty

/// A clock that is turned by hand, or runs and is turned. It begins now: certificates are of now, too.
final class TestClock: Sendable {
    private let offset = Mutex(TimeInterval(0))
    private let start = Date()
    private let isRunning: Bool

    init(isRunning: Bool = false) { self.isRunning = isRunning }

    var now: @Sendable () -> Date {
        { (self.isRunning ? Date() : self.start) + self.offset.withLock(\.self) }
    }

    func advance(_ seconds: TimeInterval) { offset.withLock { $0 += seconds } }
}

/// Is removed with the last reference to it.
final class TemporaryDirectory: Sendable {
    let path = FileManager.default.temporaryDirectory.appending(path: "relying-party-\(UUID())").path
    init() throws { try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true) }
    deinit { try? FileManager.default.removeItem(atPath: path) }
}

/// Keeps all lines of a log.
final class TestLog: Sendable {
    private let text = Mutex("")

    var all: String { text.withLock { $0 } }

    var logger: Logger {
        var logger = Logger(label: "test") { _ in Handler(log: self) }
        logger.logLevel = .trace
        return logger
    }

    private struct Handler: LogHandler {
        let log: TestLog
        var metadata: Logger.Metadata = [:]
        var logLevel = Logger.Level.trace

        subscript(metadataKey key: String) -> Logger.Metadata.Value? {
            get { metadata[key] }
            set { metadata[key] = newValue }
        }

        func log(event: LogEvent) {
            let all = metadata.merging(event.metadata ?? [:]) { $1 }
            log.text.withLock { $0 += "\(event.message) \(all)\n" }
        }
    }
}

/// A program that a test runs, in a directory; it is ended with the last reference.
final class Program: @unchecked Sendable {
    struct Failure: Error { let output: String }

    // The process is started once, and then only ended.
    private let process = Process()
    private let log: String

    init(
        _ words: [String], in directory: String, input: String? = nil, environment: [String: String] = [:]
    ) throws {
        log = "\(directory)/\(UUID().uuidString).log"
        process.executableURL = URL(filePath: words[0].hasPrefix("/") ? words[0] : "/usr/bin/env")
        process.arguments = words[0].hasPrefix("/") ? Array(words.dropFirst()) : words
        process.currentDirectoryURL = URL(filePath: directory)
        // None of this process's, such as a proxy.
        process.environment = [
            "PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": directory,
        ].merging(environment) { $1 }
        if let input {
            try input.write(toFile: log + ".in", atomically: true, encoding: .utf8)
            process.standardInput = FileHandle(forReadingAtPath: log + ".in")
        } else {
            process.standardInput = FileHandle.nullDevice
        }
        _ = FileManager.default.createFile(atPath: log, contents: nil)
        process.standardOutput = FileHandle(forWritingAtPath: log)
        process.standardError = process.standardOutput
    }

    deinit { if process.isRunning { kill(process.processIdentifier, SIGKILL) } }

    var output: String { (try? String(contentsOfFile: log, encoding: .utf8)) ?? "" }

    /// Starts, and waits until a file of JSON is there.
    func start(until file: String) async throws -> [String: Any] {
        try process.run()
        let end = ContinuousClock.now + .seconds(120)
        while true {
            if let data = FileManager.default.contents(atPath: file),
                let json = try? JSONSerialization.jsonObject(with: data) as? [String: Any]
            {
                return json
            }
            guard process.isRunning, ContinuousClock.now < end else { throw Failure(output: output) }
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    func end(by signal: Int32 = SIGTERM) async throws -> Int32 {
        if process.isRunning { kill(process.processIdentifier, signal) }
        return await ended()
    }

    /// Runs to the end, and returns the status and what was written.
    func run() async throws -> (status: Int32, output: String) {
        try process.run()
        return (await ended(), output)
    }

    /// A thread waits, and not a task.
    private func ended() async -> Int32 {
        await withCheckedContinuation { continuation in
            Thread.detachNewThread { [process] in
                process.waitUntilExit()
                continuation.resume(returning: process.terminationStatus)
            }
        }
    }

    /// Runs a program that has to succeed.
    @discardableResult static func run(
        _ words: [String], in directory: String, environment: [String: String] = [:]
    ) async throws -> String {
        let (status, output) = try await Program(words, in: directory, environment: environment).run()
        guard status == 0 else { throw Failure(output: output) }
        return output
    }
}

/// Files that are made once: a CA, the certificate of localhost, and RSA keys.
struct Fixtures: Sendable {
    let directory: TemporaryDirectory

    private static let made = Task { try await Fixtures() }
    static var shared: Fixtures { get async throws { try await made.value } }

    private init() async throws {
        directory = try TemporaryDirectory()
        let path = directory.path
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        func openssl(_ arguments: [String]) async throws {
            try await Program.run(["openssl"] + arguments, in: path)
        }
        try await openssl(
            ["req", "-x509"] + key + [
                "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=Test CA", "-days", "30", "-addext",
                "keyUsage=critical,keyCertSign,cRLSign",
            ])
        try await openssl(
            ["req", "-new"] + key + ["-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost"])
        try """
        subjectAltName=DNS:localhost,IP:127.0.0.1
        basicConstraints=critical,CA:FALSE
        keyUsage=critical,digitalSignature
        extendedKeyUsage=serverAuth
        """.write(toFile: "\(path)/extensions", atomically: true, encoding: .utf8)
        try await openssl([
            "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "20",
            "-extfile", "extensions", "-out", "server.pem",
        ])
        for name in ["one", "other"] {
            try await openssl(["genrsa", "-out", "\(name).pem", "2048"])
            try await openssl(["rsa", "-in", "\(name).pem", "-pubout", "-out", "\(name).pub"])
        }
    }

    func text(_ name: String) throws -> String {
        try String(contentsOfFile: "\(directory.path)/\(name)", encoding: .utf8)
    }
}

extension BoundKeys {
    /// Records the key of a user who has none, from the draft on.
    func bind(_ key: String, to user: String) throws(ProviderError) -> Bool {
        let draft = try draft(key, of: user)
        defer { discard(draft) }
        return try bind(draft)
    }
}

/// The folder of the package.
var packageDirectory: String {
    URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent().path
}

/// What some tests need.
enum Peers {
    static let hasAuthlib = FileManager.default.fileExists(atPath: "/usr/lib/python3/dist-packages/authlib")

    /// A Python with `authority/requirements.txt`.
    static let python = ProcessInfo.processInfo.environment["SPLITKEY_PYTHON"]

    /// The program, which is built with these tests.
    static let relyingParty: String? = {
        let path = URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
            .appending(path: "relying-party").path
        return FileManager.default.isExecutableFile(atPath: path) ? path : nil
    }()
}

import CertificateProviding
import Contracts
import Foundation
import Testing

@testable import ContractServer

/// The built `contract-server`, in a directory of its own.
final class RunningServer {
    let directory: TemporaryDirectory
    private let process = Process()
    private(set) var port = 0
    private(set) var pagePort = 0

    struct NotRunning: Error { let log: String }

    /// The directory of the programs that were built with these tests.
    private static var programs: URL {
        URL(filePath: "/proc/self/exe").resolvingSymlinksInPath().deletingLastPathComponent()
    }

    static func program(_ name: String) -> String? {
        let path = programs.appending(path: name).path
        return FileManager.default.isExecutableFile(atPath: path) ? path : nil
    }

    static var isBuilt: Bool { program("contract-server") != nil }

    /// - Parameter directory: That of an earlier server, to go on with its state.
    init(_ arguments: [String] = [], in directory: TemporaryDirectory? = nil) async throws {
        self.directory = try directory ?? TemporaryDirectory()
        let path = self.directory.path
        try "\(TestServer.seed)\n".write(toFile: "\(path)/seeds", atomically: true, encoding: .utf8)
        try "# accounts\n\(TestServer.alice)\n".write(toFile: "\(path)/accounts", atomically: true, encoding: .utf8)
        try? FileManager.default.removeItem(atPath: "\(path)/ports")
        _ = FileManager.default.createFile(atPath: "\(path)/log", contents: nil)
        process.executableURL = URL(filePath: try #require(Self.program("contract-server")))
        process.arguments =
            [
                "serve", "--state", "\(path)/state", "--seeds", "\(path)/seeds", "--accounts", "\(path)/accounts",
                "--port", "0", "--page-port", "0", "--ports-file", "\(path)/ports",
            ] + arguments
        process.environment = environment.merging(["LOG_LEVEL": "trace"]) { $1 }
        process.standardOutput = FileHandle.nullDevice
        process.standardError = FileHandle(forWritingAtPath: "\(path)/log")
        try process.run()
        let end = Date() + 600
        while true {
            if let json = try? JSONValue(parsing: Array(Data(contentsOf: URL(filePath: "\(path)/ports")))) {
                (port, pagePort) = (json["port"]?.integer ?? 0, json["pagePort"]?.integer ?? 0)
                break
            }
            guard process.isRunning, Date() < end else { throw NotRunning(log: log) }
            try await Task.sleep(for: .milliseconds(20))
        }
    }

    deinit { stop() }

    func stop() {
        guard process.isRunning else { return }
        process.terminate()
        process.waitUntilExit()
    }

    /// Ends the server without a word.
    func kill() {
        guard process.isRunning else { return }
        Foundation.kill(process.processIdentifier, SIGKILL)
        process.waitUntilExit()
    }

    var log: String { (try? String(contentsOfFile: "\(directory.path)/log", encoding: .utf8)) ?? "" }

    var url: String { "https://localhost:\(port)" }

    /// The variables of programs. They get none of this process's, such as a proxy.
    private var environment: [String: String] {
        ["PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": directory.path]
    }

    /// Runs a program in the directory, and returns its status and what it prints.
    @discardableResult
    func run(
        _ program: String, _ arguments: [String], input: String = "", environment: [String: String] = [:]
    ) throws -> (status: Int32, output: String) {
        let process = Process()
        process.executableURL = URL(filePath: program.hasPrefix("/") ? program : "/usr/bin/env")
        process.arguments = (program.hasPrefix("/") ? [] : [program]) + arguments
        process.currentDirectoryURL = URL(filePath: directory.path)
        process.environment = self.environment.merging(environment) { $1 }
        let name = UUID().uuidString
        let (given, printed) = ("\(directory.path)/\(name).in", "\(directory.path)/\(name).out")
        try input.write(toFile: given, atomically: true, encoding: .utf8)
        _ = FileManager.default.createFile(atPath: printed, contents: nil)
        process.standardInput = FileHandle(forReadingAtPath: given)
        process.standardOutput = FileHandle(forWritingAtPath: printed)
        process.standardError = process.standardOutput
        try process.run()
        process.waitUntilExit()
        let output = String(decoding: try Data(contentsOf: URL(filePath: printed)), as: UTF8.self)
        for file in [given, printed] { try FileManager.default.removeItem(atPath: file) }
        return (process.terminationStatus, output)
    }

    /// Sends a request with curl, and returns the status and the body.
    func curl(_ path: String, as identity: String? = nil, _ arguments: [String] = []) throws -> (
        status: Int, body: String
    ) {
        let identity = identity.map { ["--cert", "\($0).pem", "--key", "\($0).key"] } ?? []
        let (status, output) = try run(
            "curl",
            ["--silent", "--show-error", "--cacert", "state/ca.pem", "--noproxy", "*", "--write-out", "\n%{http_code}"]
                + identity + arguments + [path.hasPrefix("http") ? path : url + path])
        let lines = output.split(separator: "\n", omittingEmptySubsequences: false)
        guard status == 0, let code = lines.last.flatMap({ Int($0) }) else { throw NotRunning(log: output) }
        return (code, lines.dropLast().joined(separator: "\n"))
    }

    func token() throws -> String {
        let time = Int((Date().timeIntervalSince1970 + 600) * 1000)
        let (status, token) = try curl(
            TokenTests.path,
            ["--header", "j_token: \(TestServer.seed)", "--data", #"{"email":"\#(TestServer.alice)","time":\#(time)}"#])
        #expect(status == 200)
        return token
    }

    /// Makes a key with openssl, and enrols it with curl: the files `NAME.key` and `NAME.pem`.
    ///
    /// - Returns: The status.
    func enrol(_ name: String, token: String? = nil, as identity: String? = nil) throws -> Int {
        try run(
            "openssl",
            [
                "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                "\(name).key",
                "-out", "\(name).csr", "-outform", "DER", "-subj", "/CN=\(name)",
            ])
        try run("openssl", ["base64", "-in", "\(name).csr", "-out", "\(name).b64"])
        let operation = token == nil ? "simplereenroll" : "simpleenroll"
        let (status, body) = try curl(
            "/.well-known/est/\(operation)", as: identity,
            (token.map { ["--user", "pairing:\($0)"] } ?? [])
                + ["--header", "Content-Type: application/pkcs10", "--data-binary", "@\(name).b64"])
        guard status == 200 else { return status }
        try body.write(toFile: "\(directory.path)/\(name).p7", atomically: true, encoding: .utf8)
        try run("openssl", ["base64", "-d", "-in", "\(name).p7", "-out", "\(name).der"])
        let (_, text) = try run("openssl", ["pkcs7", "-inform", "DER", "-in", "\(name).der", "-print_certs"])
        try text.write(toFile: "\(directory.path)/\(name).pem", atomically: true, encoding: .utf8)
        return status
    }
}

import Foundation
import Glibc
import Subprocess
import Testing

/// The built program `dvs`, with a home and a property file of a test's own.
final class DVSProgram: Sendable {
    struct Output: Sendable, CustomStringConvertible {
        var status: Int32
        var stdout: String
        var stderr: String

        var description: String { "status \(status)\nstdout: \(stdout)\nstderr: \(stderr)" }

        /// The JSON object of stdout, or of the last line of stderr.
        func json(_ isError: Bool = false) throws -> [String: Any] {
            let text = isError ? stderr.split(separator: "\n").last.map(String.init) ?? "" : stdout
            return try #require(
                try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any], "\(self)")
        }
    }

    let path: String

    /// - Parameter settings: Lines of the property file.
    init(_ settings: String = "") throws {
        // A program that ends before it has read its input must not end the tests.
        signal(SIGPIPE, SIG_IGN)
        path = FileManager.default.temporaryDirectory.path + "/dvs-\(UUID().uuidString)"
        for name in ["", "/home", "/state", "/config"] {
            try FileManager.default.createDirectory(
                atPath: path + name, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        }
        try write(settings + "\n", to: "host.properties")
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    subscript(name: String) -> String { path + "/" + name }

    @discardableResult
    func write(_ text: String, to name: String) throws -> String {
        try Data(text.utf8).write(to: URL(filePath: self[name]))
        try #require(chmod(self[name], 0o600) == 0)
        return self[name]
    }

    /// The path of a program that is built beside the tests.
    static func path(_ name: String = "dvs") -> String {
        let own =
            (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
        let beside = URL(filePath: own).deletingLastPathComponent().appending(path: name).path
        if FileManager.default.fileExists(atPath: beside) { return beside }
        // The tests are a library that another program has loaded.
        let arguments = CommandLine.arguments.filter { $0.contains(".xctest") }
        let bundle = arguments.first.map { String($0[..<($0.range(of: ".xctest")?.lowerBound ?? $0.endIndex)]) } ?? own
        return URL(filePath: bundle).deletingLastPathComponent().appending(path: name).path
    }

    var environment: [Environment.Key: String] {
        let python = Python.directory.map { $0 + ":" } ?? ""
        return [
            "PATH": python + "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8", "HOME": self["home"],
            "XDG_STATE_HOME": self["state"], "XDG_CONFIG_HOME": self["config"],
            "CERTPROV_CONFIG": self["host.properties"],
        ]
    }

    /// Runs `dvs` to its end, without a terminal.
    func callAsFunction(_ arguments: String...) async throws -> Output {
        try await run([Self.path()] + arguments)
    }

    /// Runs a program to its end, in a session of its own.
    func run(_ arguments: [String], input: [UInt8] = [], in directory: String? = nil) async throws -> Output {
        var options = PlatformOptions()
        options.createSession = true
        let command = directory.map { ["sh", "-c", "cd \"$0\" && exec \"$@\"", $0] + arguments } ?? arguments
        let configuration = Configuration(
            executable: .name("env"), arguments: Arguments(command), environment: .custom(environment),
            platformOptions: options)
        let result = try await Subprocess.run(
            configuration, input: .array(input), output: .bytes(limit: 16 << 20), error: .bytes(limit: 16 << 20))
        let status: Int32 =
            switch result.terminationStatus {
            case .exited(let code): code
            case .signaled(let number): -number
            }
        return Output(
            status: status, stdout: String(decoding: result.standardOutput, as: UTF8.self),
            stderr: String(decoding: result.standardError, as: UTF8.self))
    }

    /// Runs `dvs`, and kills it a time after something holds, or after half a second.
    func killed(_ arguments: String..., after time: Duration, when holds: () -> Bool) async throws {
        let configuration = Configuration(
            executable: .name("env"), arguments: Arguments([Self.path()] + arguments),
            environment: .custom(environment))
        _ = try await Subprocess.run(configuration, input: .none, output: .discarded, error: .discarded) { execution in
            let end = ContinuousClock.now + .milliseconds(500)
            while !holds(), ContinuousClock.now < end { try await Task.sleep(for: .milliseconds(1)) }
            try await Task.sleep(for: time)
            try? execution.send(signal: .kill)
        }
    }
}

/// The Python with the packages of the authority.
enum Python {
    static let program: String? = ProcessInfo.processInfo.environment["SPLITKEY_PYTHON"]
    static let directory = program.map { URL(filePath: $0).deletingLastPathComponent().path }
    static let reason: Comment =
        "SPLITKEY_PYTHON does not name a Python with the packages of authority/requirements.txt"
    /// The directory of this package.
    static let package: String = {
        var folder = URL(filePath: #filePath)
        for _ in 0..<4 { folder = folder.deletingLastPathComponent() }
        return folder.path
    }()
}

/// Waits until something holds.
func until(_ meaning: String, within time: Duration = .seconds(60), _ holds: () throws -> Bool) async throws {
    let end = ContinuousClock.now + time
    while try !holds() {
        try #require(ContinuousClock.now < end, "\(meaning): not within \(time)")
        try await Task.sleep(for: .milliseconds(2))
    }
}

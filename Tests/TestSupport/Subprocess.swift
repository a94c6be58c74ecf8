public import CertificateProviding
import Foundation

/// A program that is run to its end, for ten minutes if nothing else is said.
public enum Subprocess {
    public struct Failure: Error, CustomStringConvertible { public var description: String }

    /// Runs `arguments` and returns what it wrote to standard output.
    /// - Throws: When it fails, with what it wrote.
    @discardableResult
    public static func run(
        _ arguments: [String], input: [UInt8] = [], in directory: String = "/", seconds: Double = 600
    ) throws -> [UInt8] {
        let folder = try TemporaryDirectory()
        try folder.write(input, to: "in")
        for name in ["out", "err"] { try folder.write([], to: name) }
        // Files and no pipes: nothing can fill up.
        let process = try SpawnedProcess(
            arguments, in: directory, .files(input: folder["in"], output: folder["out"], errors: folder["err"]))
        guard let status = process.wait(seconds: seconds) else {
            throw Failure(description: "\(arguments.joined(separator: " ")) did not end within \(seconds) seconds")
        }
        guard status == 0 else {
            let reason = String(decoding: try folder.read("err") + folder.read("out"), as: UTF8.self)
            throw Failure(description: "\(arguments.joined(separator: " ")) failed (\(status)): \(reason)")
        }
        return try folder.read("out")
    }

    /// Runs tests of this bundle again in a process of their own, and sees to it that they were run: one that is
    /// skipped there would pass for one that has passed.
    ///
    /// - Parameters:
    ///   - variables: `NAME=value`, by which the tests know that they are within.
    ///   - program: What starts them, such as `unshare` and its options.
    public static func runTests(
        _ names: [String], of suite: String, with variables: [String], through program: [String] = [],
        on threads: BlockingExecutor = .threads(maximum: 1)
    ) async throws {
        let command = program + ["sh", "-c", "exec \"$@\" 2>&1", "sh", CommandLine.arguments[0]]
        let arguments = variables + command + ["--testing-library", "swift-testing", "--filter", suite]
        let output = try await threads.run { () throws(CertificateProviderError) in
            do { return try run(arguments, seconds: TestLength.current == .soak ? 3600 : 900) } catch {
                throw CertificateProviderError(.internal, "\(error)")
            }
        }
        let lines = String(decoding: output, as: UTF8.self).split(separator: "\n")
        for name in names
        where !lines.contains(where: { $0.contains("Test \(name)(") && $0.contains(" passed after ") }) {
            throw Failure(description: "\(name) was not run: \(lines.joined(separator: "\n"))")
        }
    }

    public static func openssl(_ arguments: String..., in directory: String) throws {
        try run(["openssl"] + arguments, in: directory)
    }
}

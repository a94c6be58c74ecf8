import CertificateProviding
import Contracts
import Foundation
import Logging
import Subprocess
import SystemPackage

/// The program that sends codes by text message or mail. It gets `{"by","address","code","contract"}` on its standard input.
struct NotifierProgram: CodeNotifying {
    /// An absolute path, or a name in PATH.
    let path: String
    let timeout: Duration
    let logger: Logger

    init(_ path: String, timeout: Duration = .seconds(30), logger: Logger) {
        (self.path, self.timeout, self.logger) = (path, timeout, logger)
    }

    func notify(_ notice: CodeNotice) async throws {
        let json = JSONValue.object([
            .init("by", .string(notice.channel.rawValue)), .init("address", .string(notice.address)),
            .init("code", .string(notice.code)), .init("contract", .string(notice.contract)),
        ])
        let (failure, line): (String?, String?)
        do {
            (failure, line) = try await run(String(decoding: json.bytes, as: UTF8.self) + "\n")
        } catch {
            (failure, line) = ("cannot be run: \(error)", nil)
        }
        guard let failure else { return }
        var metadata: Logger.Metadata = ["program": "\(path)", "reason": "\(failure)"]
        // The log is for the administrator, and the code for the signatory only.
        metadata["stderr"] = line.map {
            "\(DisplayText.visible(String($0.replacing(notice.code, with: "******").suffix(300))))"
        }
        logger.error("notifier failed", metadata: metadata)
        throw Refusal(
            .noNotifier, "The notifier of the server failed, and the code was not sent. Ask its administrator.")
    }

    /// - Returns: Why it failed, `nil` if it did not, and the last line of its stderr.
    private func run(_ input: String) async throws -> (failure: String?, line: String?) {
        let errors = try Self.temporaryFile()
        defer { try? errors.close() }
        let failure = try await run(input, errors)
        return (failure, failure == nil ? nil : try Self.lastLine(of: errors))
    }

    private func run(_ input: String, _ errors: FileDescriptor) async throws -> String? {
        try await withThrowingTaskGroup(of: String?.self) { group in
            let input = try Self.pipe(with: input)
            group.addTask {
                var options = PlatformOptions()
                options.teardownSequence = [.gracefulShutDown(allowedDurationToNextStep: .seconds(2))]
                let result = try await Subprocess.run(
                    path.contains("/") ? .path(FilePath(path)) : .name(path), platformOptions: options,
                    input: .fileDescriptor(input, closeAfterSpawningProcess: true), output: .discarded,
                    error: .fileDescriptor(errors, closeAfterSpawningProcess: false))
                return result.terminationStatus.isSuccess ? nil : "ended with \(result.terminationStatus)"
            }
            group.addTask {
                try await Task.sleep(for: timeout)
                return "did not end within \(timeout)"
            }
            let first = try await group.next() ?? nil
            group.cancelAll()
            return first
        }
    }

    /// Returns the end to read from of a pipe that has a text in it already. swift-subprocess ends the process where a program does not
    /// read what is written to it meanwhile.
    private static func pipe(with text: String) throws -> FileDescriptor {
        // A pipe holds that much without a reader (pipe(7)).
        guard text.utf8.count <= 4096 else { throw Refusal.invalid("address", "is too long") }
        let (reader, writer) = try FileDescriptor.pipe()
        try writer.closeAfter { _ = try writer.writeAll(text.utf8) }
        return reader
    }

    /// A file without a name. Other than a pipe it takes all that a program writes, also after its end.
    private static func temporaryFile() throws -> FileDescriptor {
        let path = FileManager.default.temporaryDirectory.appending(path: UUID().uuidString).path
        let file = try FileDescriptor.open(
            FilePath(path), .readWrite, options: [.create, .exclusiveCreate, .append, .closeOnExec],
            permissions: .ownerReadWrite)
        try FileManager.default.removeItem(atPath: path)
        return file
    }

    /// The last line with something in it of the last 1024 bytes.
    private static func lastLine(of file: FileDescriptor) throws -> String? {
        let size = try file.seek(offset: 0, from: .end)
        var buffer = [UInt8](repeating: 0, count: 1024)
        let count = try buffer.withUnsafeMutableBytes {
            try file.read(fromAbsoluteOffset: max(0, size - 1024), into: $0)
        }
        return String(decoding: buffer[..<count], as: UTF8.self).split(whereSeparator: \.isNewline).map(String.init)
            .last { !$0.allSatisfy(\.isWhitespace) }
    }

    /// Whether there is such a program: a path, or a name in PATH.
    static func exists(_ program: String) -> Bool {
        let directories = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":")
        let candidates = program.contains("/") ? [program] : directories.map { "\($0)/\(program)" }
        return !program.isEmpty
            && candidates.contains { path in
                var isDirectory: ObjCBool = false
                return FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory)
                    && !isDirectory.boolValue && FileManager.default.isExecutableFile(atPath: path)
            }
    }
}

import Foundation
import Glibc
import Subprocess
import Testing

/// A folder of a test, with programs that record what they are started with.
final class CallFolder: Sendable {
    let path: String

    init() throws {
        path = FileManager.default.temporaryDirectory.path + "/contracts-\(UUID().uuidString)"
        try FileManager.default.createDirectory(
            atPath: path, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    subscript(name: String) -> String { path + "/" + name }

    @discardableResult
    func write(_ text: String, to name: String) throws -> String { try write(Array(text.utf8), to: name) }

    @discardableResult
    func write(_ bytes: [UInt8], to name: String) throws -> String {
        let directory = URL(filePath: self[name]).deletingLastPathComponent()
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        try Data(bytes).write(to: URL(filePath: self[name]))
        try #require(chmod(self[name], 0o600) == 0)
        return self[name]
    }

    /// Writes a program. Another process makes it: what this one has open for writing, children of other tests have too.
    @discardableResult
    func program(_ name: String, _ script: String) async throws -> String {
        let source = try write("#!/bin/sh\n" + script, to: name + ".source")
        let result = try await run(
            .name("install"), arguments: ["-m", "700", source, self[name]], output: .discarded, error: .discarded)
        try #require(result.terminationStatus.isSuccess)
        return self[name]
    }

    /// Writes an opener that records its arguments: their number, then each. While the file `stays` is there, it goes on.
    func opener() async throws -> String {
        try await program(
            "opener",
            """
            { printf '%s\\n' "$#" "$@"; } >>"\(path)/opened.new" && cp "\(path)/opened.new" "\(path)/opened.copy" &&
            mv "\(path)/opened.copy" "\(path)/opened"
            while [ -e "\(path)/stays" ]; do sleep 0.05; done

            """)
    }

    /// What the opener was started with, in turn; one argument each.
    func opened() throws -> [String] {
        guard let text = try? String(contentsOfFile: self["opened"], encoding: .utf8) else { return [] }
        let lines = text.split(separator: "\n").map(String.init)
        var urls: [String] = []
        for index in stride(from: 0, to: lines.count, by: 2) {
            try #require(lines[index] == "1" && index + 1 < lines.count, "\(lines)")
            urls.append(lines[index + 1])
        }
        return urls
    }

    func exists(_ name: String) -> Bool { FileManager.default.fileExists(atPath: self[name]) }
}

/// Waits until something holds. Longer than other tests keep the threads of the pool busy.
func until(_ meaning: String, within time: Duration = .seconds(600), _ holds: () throws -> Bool) async throws {
    let end = ContinuousClock.now + time
    while try !holds() {
        try #require(ContinuousClock.now < end, "\(meaning): not within \(time)")
        try await Task.sleep(for: .milliseconds(2))
    }
}

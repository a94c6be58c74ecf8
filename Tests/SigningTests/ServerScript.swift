import Foundation
import TestSupport

/// A server for tests in Python, which makes its files in a directory, for as long as this object lives.
final class ServerScript: Sendable {
    let directory: TemporaryDirectory
    let origin: String
    private let process: Subprocess

    /// Starts a script of this folder, and waits for its port.
    init(_ name: String) throws {
        directory = try TemporaryDirectory()
        let script = URL(filePath: #filePath).deletingLastPathComponent().appending(path: name).path
        process = try Subprocess(["python3", script, directory.path], .held)
        var port = ""
        while port.isEmpty {
            guard !process.hasEnded else { throw Subprocess.Failure(description: "\(name): \(process.wait())") }
            usleep(5000)
            port = (try? String(contentsOfFile: directory["port"], encoding: .utf8)) ?? ""
        }
        origin = "http://127.0.0.1:\(port)"
    }

    func stop() { process.stop() }
}

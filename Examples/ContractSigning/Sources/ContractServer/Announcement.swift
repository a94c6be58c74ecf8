import CertificateProviding
import Foundation
import NIOCore
import Synchronization
import SystemPackage

/// Prints one line of JSON when all listeners accept connections: `{"pagePort":8083,"port":8443}`. Writes it to a file as well, if
/// there is to be one.
final class Announcement: Sendable {
    private struct Line: Encodable {
        var port: Int?
        var pagePort: Int?
    }

    private let line = Mutex(Line())
    private let hasPage: Bool
    private let file: String?

    /// Removes the file of an earlier server. The new one appears whole, when the server listens.
    ///
    /// - Throws: `ConfigurationError` for a file that cannot be written.
    init(hasPage: Bool, file: String?) throws {
        (self.hasPage, self.file) = (hasPage, file)
        guard let file else { return }
        do {
            try FileDescriptor.open(
                FilePath(Self.unfinished(file)), .writeOnly, options: [.create, .truncate], permissions: .ownerReadWrite
            ).close()
            guard unlink(file) == 0 || errno == ENOENT else { throw Errno(rawValue: errno) }
        } catch {
            throw ConfigurationError(
                "--ports-file \(DisplayText.visible(file)) cannot be written: \(error). Set another one.")
        }
    }

    private static func unfinished(_ file: String) -> String { file + ".new" }

    func listens(_ channel: any Channel) { note { $0.port = channel.localAddress?.port } }

    func pageListens(_ channel: any Channel) { note { $0.pagePort = channel.localAddress?.port } }

    private func note(_ change: (inout Line) -> Void) {
        let line = line.withLock { line in
            change(&line)
            return line
        }
        guard line.port != nil, !hasPage || line.pagePort != nil else { return }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        guard let text = try? encoder.encode(line) + Data("\n".utf8) else { return }
        if let file, (try? text.write(to: URL(filePath: Self.unfinished(file)))) != nil {
            _ = rename(Self.unfinished(file), file)
        }
        // A server whose output is closed serves all the same.
        try? FileHandle.standardOutput.write(contentsOf: text)
    }
}

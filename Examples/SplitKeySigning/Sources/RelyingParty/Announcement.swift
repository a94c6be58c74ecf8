import CertificateProviding
import Foundation
import NIOCore

/// The line of JSON that says where the server listens, `{"port":8444}`: on stdout, and in a file if there is to be one.
struct Announcement: Sendable {
    private let file: String?

    /// Removes the file of an earlier server. The new one appears whole, when the server listens.
    ///
    /// - Throws: `configurationInvalid` for a file that cannot be written.
    init(file: String?) throws(ProviderError) {
        self.file = file
        guard let file else { return }
        let descriptor = open(Self.unfinished(file), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
        guard descriptor >= 0, close(descriptor) == 0, unlink(file) == 0 || errno == ENOENT else {
            let number = errno
            throw ProviderError(
                .configurationInvalid,
                "--ports-file \(DisplayText.visible(file)) cannot be written: \(String(cString: strerror(number))). Set another one.",
                nativeCode: Int(number))
        }
    }

    private static func unfinished(_ file: String) -> String { file + ".new" }

    func listens(_ channel: any Channel) {
        let line = Data("{\"port\":\(channel.localAddress?.port ?? 0)}\n".utf8)
        if let file, (try? line.write(to: URL(filePath: Self.unfinished(file)))) != nil {
            _ = rename(Self.unfinished(file), file)
        }
        // A server whose output is closed serves all the same.
        try? FileHandle.standardOutput.write(contentsOf: line)
    }
}

import Foundation
import NIOCore
import Synchronization

/// Prints one line of JSON when both listeners accept connections.
final class Announcement: Sendable {
    private struct Listeners {
        var certificate: SocketAddress?
        var password: SocketAddress?
    }

    private struct Line: Encodable {
        var certificatePort: Int?
        var certificateSocket: String?
        var passwordPort: Int?
    }

    private let listeners = Mutex(Listeners())

    func certificateListener(_ channel: any Channel) { note { $0.certificate = channel.localAddress } }

    func passwordListener(_ channel: any Channel) { note { $0.password = channel.localAddress } }

    private func note(_ change: (inout Listeners) -> Void) {
        let listeners = listeners.withLock { listeners in
            change(&listeners)
            return listeners
        }
        guard let certificate = listeners.certificate, let password = listeners.password else { return }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let line = Line(
            certificatePort: certificate.port, certificateSocket: certificate.pathname, passwordPort: password.port)
        // A server whose output is closed serves all the same.
        try? FileHandle.standardOutput.write(contentsOf: try encoder.encode(line) + Data("\n".utf8))
    }
}

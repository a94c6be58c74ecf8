import Glibc

/// Tells systemd how the service is doing, in the protocol of sd_notify(3). Without systemd, does nothing.
public struct ServiceManager: Sendable {
    public enum State: String, Sendable {
        case ready = "READY=1"
        case reloading = "RELOADING=1"
        case stopping = "STOPPING=1"
    }

    private let socketPath: String?

    public init() { socketPath = getenv("NOTIFY_SOCKET").map { String(cString: $0) } }

    /// Sends one datagram and waits for no answer.
    /// - Parameter status: What `systemctl status` shows.
    public func notify(_ state: State, status: String? = nil) {
        guard let socketPath else { return }
        var message = state.rawValue
        if let status { message += "\nSTATUS=" + status.split(whereSeparator: \.isNewline).joined(separator: " ") }
        send(Array(message.utf8), to: Array(socketPath.utf8))
    }

    private func send(_ message: [UInt8], to path: [UInt8]) {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        guard path.count < MemoryLayout.size(ofValue: address.sun_path) else { return }
        withUnsafeMutableBytes(of: &address.sun_path) { field in
            field.copyBytes(from: path)
            // The sign of an abstract socket, whose name begins with a zero byte (unix(7)).
            if field[0] == UInt8(ascii: "@") { field[0] = 0 }
        }
        let length = MemoryLayout<sa_family_t>.size + path.count

        let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        withUnsafePointer(to: address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                _ = sendto(descriptor, message, message.count, Int32(MSG_NOSIGNAL), $0, socklen_t(length))
            }
        }
    }
}

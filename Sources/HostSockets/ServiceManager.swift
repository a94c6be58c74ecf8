import CLinux
package import CertificateProviding
import Glibc

/// The service manager, systemd, where it has started this process.
package enum ServiceManager {
    /// A listening socket, and its name: `FileDescriptorName=` of its unit (systemd.socket(5)).
    package typealias PassedSocket = (name: String, socket: ListeningSocket)

    /// Returns the sockets that it has passed (sd_listen_fds_with_names(3)). Several may have one name.
    ///
    /// - Throws: `configurationInvalid` unless each is a listening Unix stream socket with a name.
    package static func sockets() throws(ProviderError) -> [PassedSocket] { try sockets(variable, first: 3) }

    static func sockets(_ variable: (String) -> String?, first: Int32) throws(ProviderError) -> [PassedSocket] {
        // A program that such a service starts has the variables, and not the sockets.
        guard variable("LISTEN_PID").flatMap({ Int32($0) }) == getpid(), let number = variable("LISTEN_FDS") else {
            return []
        }
        let count = Int32(number) ?? -1
        let names =
            variable("LISTEN_FDNAMES").map {
                $0.split(separator: ":", omittingEmptySubsequences: false).map(String.init)
            }
            ?? Array(repeating: "unknown", count: Int(max(0, min(count, maximum))))
        guard (0...maximum).contains(count), count == 0 || names.count == count else {
            throw ProviderError(
                .configurationInvalid,
                "The service manager passes \(number.withVisibleControls) sockets with \(names.count) names; there may be "
                    + "\(maximum), each with one name: look at the socket units.")
        }
        var sockets: [PassedSocket] = []
        for (descriptor, name) in zip(first..<first + count, names) {
            guard UnixSocket.option(SO_DOMAIN, of: descriptor) == AF_UNIX,
                UnixSocket.option(SO_TYPE, of: descriptor) == Int32(SOCK_STREAM.rawValue),
                UnixSocket.option(SO_ACCEPTCONN, of: descriptor) == 1
            else {
                throw ProviderError(
                    .configurationInvalid,
                    "Descriptor \(descriptor), which the service manager passes, is not a listening Unix stream socket; set "
                        + "ListenStream= to a path, and Accept=no, in the socket unit.")
            }
            _ = fcntl(descriptor, F_SETFD, FD_CLOEXEC)
            sockets.append((name, ListeningSocket(passed: descriptor)))
        }
        return sockets
    }

    private static let maximum: Int32 = 64

    /// Tells it that the service is ready (sd_notify(3)), if it asks for that.
    package static func reportReadiness() { notify("READY=1") }

    /// Tells it something (sd_notify(3)), if it asks for that: lines such as `STATUS=…`.
    package static func notify(_ lines: String...) {
        guard let path = variable("NOTIFY_SOCKET") else { return }
        let descriptor = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        let message = Array(lines.joined(separator: "\n").utf8)
        _ = UnixSocket.withAddress(path) {
            sendto(descriptor, message, message.count, Int32(MSG_NOSIGNAL), $0, $1)
        }
    }

    /// The time within which it wants `WATCHDOG=1` again (sd_watchdog_enabled(3)); `nil` if it does not watch this process.
    package static var watchdog: Duration? {
        guard let microseconds = variable("WATCHDOG_USEC").flatMap({ Int64($0) }), microseconds > 0,
            variable("WATCHDOG_PID").map({ Int32($0) == getpid() }) ?? true
        else { return nil }
        return .microseconds(microseconds)
    }

    private static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}

import CLinux
package import CertificateProviding
import Glibc

/// The service manager, systemd, where it has started this process.
package enum ServiceManager {
    /// Returns the socket that it has passed (sd_listen_fds(3)); `nil` without one.
    ///
    /// - Throws: `configurationInvalid` unless it is one listening Unix socket.
    package static func socket() throws(ProviderError) -> ListeningSocket? {
        // A program that such a service starts has the variables, and not the socket.
        guard variable("LISTEN_PID").flatMap({ Int32($0) }) == getpid(), let number = variable("LISTEN_FDS"),
            number != "0"
        else { return nil }
        guard number == "1" else {
            throw ProviderError(
                .configurationInvalid,
                "The service manager passes \(number.withVisibleControls) sockets, and requests have one; leave one "
                    + "ListenStream= in the socket unit.")
        }
        let first: Int32 = 3
        guard UnixSocket.option(SO_DOMAIN, of: first) == AF_UNIX,
            UnixSocket.option(SO_TYPE, of: first) == Int32(SOCK_STREAM.rawValue),
            UnixSocket.option(SO_ACCEPTCONN, of: first) == 1
        else {
            throw ProviderError(
                .configurationInvalid,
                "Descriptor 3, which the service manager passes, is not a listening Unix stream socket; set ListenStream= to a "
                    + "path, and Accept=no, in the socket unit.")
        }
        _ = fcntl(first, F_SETFD, FD_CLOEXEC)
        return ListeningSocket(passed: first)
    }

    /// Tells it that the service is ready (sd_notify(3)), if it asks for that.
    package static func reportReadiness() {
        guard let path = variable("NOTIFY_SOCKET") else { return }
        let descriptor = Glibc.socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        let message = Array("READY=1".utf8)
        _ = UnixSocket.withAddress(path) {
            sendto(descriptor, message, message.count, Int32(MSG_NOSIGNAL), $0, $1)
        }
    }

    private static func variable(_ name: String) -> String? { getenv(name).map { String(cString: $0) } }
}

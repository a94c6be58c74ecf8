import CLinux
package import CertificateProviding
import FoundationEssentials
package import Glibc
package import HostSockets

/// The socket at which the service says how it is: for its own user, and for root.
package enum StatusSocket {
    package enum Question: Sendable {
        case status, metrics
        /// Which identities a process may use.
        case explain(pid_t)

        private static let beginning = "explain "

        init?(_ text: String) {
            switch text {
            case "status": self = .status
            case "metrics": self = .metrics
            default:
                guard text.hasPrefix(Self.beginning), let process = pid_t(text.dropFirst(Self.beginning.count)) else {
                    return nil
                }
                self = .explain(process)
            }
        }

        var text: String {
            switch self {
            case .status: "status"
            case .metrics: "metrics"
            case .explain(let process): "\(Self.beginning)\(process)"
            }
        }
    }

    /// The option that names another path.
    private static let setting = "--socket"

    /// Makes the socket.
    ///
    /// - Parameter path: `nil` for the standard place, whose directory is made.
    /// - Throws: As `ListeningSocket`; `alreadyExists` if the service runs already.
    package static func listen(at path: String?) throws(ProviderError) -> ListeningSocket {
        let place = if let path { path } else { try standardPath() }
        if path == nil, let end = place.lastIndex(of: "/") { mkdir(String(place[..<end]), 0o755) }
        return try ListeningSocket(at: place, setting: setting)
    }

    /// `serve.sock` in the directory that systemd has made (systemd.exec(5), `RuntimeDirectory=`), else in `/run/certprov` for root, else
    /// in `certprov` in the user's runtime directory.
    private static func standardPath() throws(ProviderError) -> String {
        func directory(_ name: String) -> String? {
            getenv(name).map { String(cString: $0) }.flatMap { $0.hasPrefix("/") ? $0 : nil }
        }
        if let given = directory("RUNTIME_DIRECTORY")?.split(separator: ":").first { return "\(given)/serve.sock" }
        if geteuid() == 0 { return "/run/certprov/serve.sock" }
        if let own = directory("XDG_RUNTIME_DIR") { return "\(own)/certprov/serve.sock" }
        throw ProviderError(
            .configurationInvalid,
            "There is no runtime directory for the status socket: XDG_RUNTIME_DIR is not set to an absolute path. Name the socket "
                + "with \(setting).")
    }

    /// Asks the service that runs. Blocks for ten seconds at most.
    ///
    /// - Throws: `unavailable` if none runs; `rejected` if the socket is of another user who is not root; `timedOut`.
    package static func ask(_ question: Question, at path: String?) throws(ProviderError) -> [UInt8] {
        let place = if let path { path } else { try standardPath() }
        let name = place.withVisibleControls
        func failed(_ code: Int32) -> ProviderError {
            if code == EAGAIN { return ProviderError(.timedOut, "The service at \(name) does not answer.") }
            if code == EACCES {
                return ProviderError(.rejected, "The socket \(name) is for the user of the service, and root.")
            }
            return ProviderError(
                .unavailable,
                "No service answers at \(name): \(errorText(code)). Start it with: systemctl start certprov-serve; or name its socket "
                    + "with \(setting).")
        }
        let descriptor = UnixSocket.make()
        guard descriptor >= 0 else { throw failed(errno) }
        defer { close(descriptor) }
        var time = timeval(tv_sec: 10, tv_usec: 0)
        for option in [SO_SNDTIMEO, SO_RCVTIMEO] {
            setsockopt(descriptor, SOL_SOCKET, option, &time, socklen_t(MemoryLayout<timeval>.size))
        }
        guard let code = UnixSocket.withAddress(place, { connect(descriptor, $0, $1) == 0 ? 0 : errno }) else {
            throw UnixSocket.isNoAddress(place, setting: setting)
        }
        guard code == 0 else { throw failed(code) }
        guard let peer = SocketPeer(of: descriptor), geteuid() == 0 || [0, geteuid()].contains(peer.user) else {
            throw ProviderError(
                .rejected, "The service at \(name) is a process of another user; name another socket with \(setting).")
        }
        let bytes = Array(question.text.utf8)
        guard send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count else { throw failed(errno) }
        shutdown(descriptor, Int32(SHUT_WR))
        var answer: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let count = recv(descriptor, &buffer, buffer.count, 0)
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else { throw failed(errno) }
            if count == 0 { break }
            guard answer.count + count <= 1 << 24 else {
                throw ProviderError(.protocolError, "The answer of the service at \(name) has more than 16 MiB.")
            }
            answer += buffer[..<count]
        }
        guard !answer.isEmpty else { throw failed(ECONNRESET) }
        return answer
    }

    /// Asks the service how it is.
    ///
    /// - Throws: As ``ask(_:at:)``; `protocolError` for an answer of another version.
    package static func status(at path: String?) throws(ProviderError) -> HostStatus {
        try answer(to: .status, at: path)
    }

    /// Asks the service which identities a process may use.
    ///
    /// - Returns: `nil` if there is no such process.
    /// - Throws: As ``status(at:)``.
    package static func explanation(
        of process: pid_t, at path: String?
    ) throws(ProviderError) -> HostStatus.Explanation? {
        try answer(to: .explain(process), at: path)
    }

    private static func answer<T: Decodable>(to question: Question, at path: String?) throws(ProviderError) -> T {
        let answer = try ask(question, at: path)
        do { return try JSONDecoder().decode(T.self, from: Data(answer)) } catch {
            throw ProviderError(
                .protocolError, "The service is of another version: its answer cannot be read. Restart it.",
                underlying: error)
        }
    }
}

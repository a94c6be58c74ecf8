public import CertificateProviding
import Glibc
package import HostSockets
import Synchronization

/// The socket of this user's signer, and the sender's side of it.
public enum RequestSocket {
    /// The largest reply that is taken, in bytes.
    private static let largestReply = 1 << 28

    /// The path of the socket: `certprov/requests.sock` in the runtime directory, `$XDG_RUNTIME_DIR`.
    ///
    /// - Throws: `configurationInvalid` without a runtime directory.
    public static func defaultPath() throws(ProviderError) -> String {
        // A relative path counts as none (XDG Base Directory Specification).
        guard let directory = getenv("XDG_RUNTIME_DIR").map({ String(cString: $0) }), directory.hasPrefix("/") else {
            throw ProviderError(
                .configurationInvalid,
                "There is no runtime directory for the socket of signing requests: XDG_RUNTIME_DIR is not set to an absolute "
                    + "path. Name the socket with --socket PATH.")
        }
        return directory + "/certprov/requests.sock"
    }

    /// Makes the socket, for this user alone.
    ///
    /// - Parameter path: Its file; `nil` for ``defaultPath()``, whose directory is made.
    /// - Throws: As `ListeningSocket`, and ``defaultPath()``.
    package static func listen(at path: String?) throws(ProviderError) -> ListeningSocket {
        let path = if let path { path } else { try preparedDefaultPath() }
        return try ListeningSocket(at: path, setting: "--socket")
    }

    /// Returns the default path, and makes the directory in the runtime directory, for this user alone.
    private static func preparedDefaultPath() throws(ProviderError) -> String {
        let path = try defaultPath()
        guard let end = path.lastIndex(of: "/") else { return path }
        let directory = String(path[..<end])
        var status = stat()
        if mkdir(directory, 0o700) != 0, errno != EEXIST {
            throw ProviderError(
                .storeWriteFailed,
                "The directory \(directory.withVisibleControls) cannot be made: \(errorText(errno)); name a socket with "
                    + "--socket.")
        }
        guard lstat(directory, &status) == 0, status.st_mode & S_IFMT == S_IFDIR, status.st_uid == geteuid(),
            status.st_mode & 0o022 == 0
        else {
            throw ProviderError(
                .configurationInvalid,
                "\(directory.withVisibleControls) is not a directory of this user alone; remove it, or run: chmod go-w "
                    + directory.shellQuoted)
        }
        return path
    }

    /// Sends a request to the signer, and returns its reply as it came; no bytes if the signer ends without one. Suspends until then,
    /// which may take as long as a person thinks.
    ///
    /// - Parameters:
    ///   - request: The URL of the request.
    ///   - path: The socket; `nil` for ``defaultPath()``.
    ///   - time: How long to wait for the reply.
    /// - Throws: `unavailable` if there is no signer, `timedOut` without a reply in time, `rejected` if the socket is another user's,
    ///   `protocolError` for a reply of more than 256 MiB, `userCancelled` if the task is cancelled, and the errors of
    ///   ``defaultPath()``.
    public static func send(
        _ request: String, to path: String? = nil, within time: Duration
    ) async throws(ProviderError) -> [UInt8] {
        let path = if let path { path } else { try defaultPath() }
        let deadline = ContinuousClock.now + time
        let descriptor = UnixSocket.make()
        guard descriptor >= 0 else {
            throw ProviderError(.unavailable, "A socket cannot be made: \(errorText(errno)).")
        }
        defer { close(descriptor) }
        let result = await withTaskCancellationHandler { () -> Result<[UInt8], ProviderError> in
            do throws(ProviderError) {
                return .success(
                    try await BlockingExecutor.threads(maximum: 1).run { () throws(ProviderError) in
                        try connect(descriptor, to: path, until: deadline)
                        try write(request, to: descriptor, at: path, until: deadline)
                        return try read(descriptor, at: path, until: deadline)
                    })
            } catch { return .failure(error) }
        } onCancel: {
            // Wakes the thread.
            _ = shutdown(descriptor, Int32(SHUT_RDWR))
        }
        if Task.isCancelled {
            throw ProviderError(.userCancelled, "The request was given up: its task was cancelled.")
        }
        return try result.get()
    }

    private static func connect(
        _ descriptor: Int32, to path: String, until deadline: ContinuousClock.Instant
    ) throws(ProviderError) {
        let name = path.withVisibleControls
        // A full backlog is waited for. There is nothing that poll(2) could wait for then.
        let left = max(1, milliseconds(until: deadline))
        var time = timeval(tv_sec: Int(left / 1000), tv_usec: Int(left % 1000) * 1000)
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &time, socklen_t(MemoryLayout<timeval>.size))
        guard let code = UnixSocket.withAddress(path, { Glibc.connect(descriptor, $0, $1) == 0 ? 0 : errno }) else {
            throw UnixSocket.isNoAddress(path, setting: "--socket")
        }
        switch code {
        case 0: break
        case EAGAIN: throw hasNoTime(path)
        case ENOENT, ECONNREFUSED:
            throw ProviderError(
                .unavailable,
                "No signer listens at \(name): \(errorText(code)). Run: systemctl --user enable --now "
                    + "certprov-requests.socket")
        default:
            throw ProviderError(
                .unavailable, "The signer at \(name) cannot be reached: \(errorText(code)).")
        }
        guard SocketPeer(of: descriptor)?.user == geteuid() else {
            throw ProviderError(
                .rejected,
                "The signer at \(name) is a process of another user, and gets no request; name another socket.")
        }
    }

    private static func write(
        _ request: String, to descriptor: Int32, at path: String, until deadline: ContinuousClock.Instant
    ) throws(ProviderError) {
        var request = request
        var rest = 0..<request.utf8.count
        while !rest.isEmpty {
            try wait(for: POLLOUT, descriptor, at: path, until: deadline)
            let count = request.withUTF8 { bytes in
                Glibc.send(
                    descriptor, bytes.baseAddress.map { $0 + rest.lowerBound }, rest.count,
                    Int32(MSG_NOSIGNAL) | Int32(MSG_DONTWAIT))
            }
            if count < 0 && (errno == EAGAIN || errno == EINTR) { continue }
            // The signer has closed. It may have replied before.
            guard count >= 0 else { break }
            rest = rest.lowerBound + count..<rest.upperBound
        }
        shutdown(descriptor, Int32(SHUT_WR))
    }

    private static func read(
        _ descriptor: Int32, at path: String, until deadline: ContinuousClock.Instant
    ) throws(ProviderError) -> [UInt8] {
        var reply: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            try wait(for: POLLIN, descriptor, at: path, until: deadline)
            let count = recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            if count < 0 && (errno == EAGAIN || errno == EINTR) { continue }
            // Closed with a part of the request unread, it ends with an error.
            guard count > 0 else { return reply }
            guard reply.count + count <= largestReply else {
                throw ProviderError(
                    .protocolError, "The reply of the signer at \(path.withVisibleControls) has more than 256 MiB.")
            }
            reply += buffer[..<count]
        }
    }

    private static func wait(
        for event: Int32, _ descriptor: Int32, at path: String, until deadline: ContinuousClock.Instant
    ) throws(ProviderError) {
        var waiting = pollfd(fd: descriptor, events: Int16(event), revents: 0)
        while true {
            let count = poll(&waiting, 1, milliseconds(until: deadline))
            if count > 0 { return }
            if count == 0 || deadline <= .now { throw hasNoTime(path) }
        }
    }

    private static func hasNoTime(_ path: String) -> ProviderError {
        ProviderError(
            .timedOut,
            "The signer at \(path.withVisibleControls) has not replied in time. The person may not have decided: see certprov "
                + "requests list")
    }
}

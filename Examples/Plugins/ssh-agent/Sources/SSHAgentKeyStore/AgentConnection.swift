import CertificateProviding
import Glibc

/// A connection to an agent for one request. Blocks, until a deadline at most.
struct AgentConnection: ~Copyable {
    /// The most bytes of a message, in OpenSSH too.
    private static let maximumSize = 256 * 1024

    private let path: String
    private let timeout: Duration
    private let deadline: ContinuousClock.Instant
    private let descriptor: Int32

    /// Makes a socket. Does not connect yet.
    init(path: String, timeout: Duration) throws(ProviderError) {
        (self.path, self.timeout, deadline) = (path, timeout, ContinuousClock.now + timeout)
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        if descriptor < 0 {
            throw ProviderError(
                .internal, "A socket for the ssh-agent cannot be made: \(String(cString: strerror(errno))).")
        }
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Sends a request.
    ///
    /// - Returns: The type of the answer, and its fields.
    func answer(to request: [SecretBytes]) throws(ProviderError) -> (type: UInt8, fields: SSHReader) {
        let size = request.reduce(0) { $0 + $1.count }
        guard size <= Self.maximumSize else {
            throw ProviderError(
                .malformedData,
                "A request of \(size) bytes is too long for the ssh-agent at \(path), which takes \(Self.maximumSize).")
        }
        try connect()
        for part in [SecretBytes(copying: size.sshUInt32)] + request { try send(part) }
        var header = SSHReader(try receive(4)[...])
        let answerSize = try header.uint32()
        guard (1...Self.maximumSize).contains(answerSize) else {
            throw ProviderError(
                .protocolError,
                "The ssh-agent at \(path) announces an answer of \(answerSize) bytes, and its protocol permits 1 to "
                    + "\(Self.maximumSize); check that this is the socket of an agent.")
        }
        var fields = SSHReader(try receive(answerSize)[...])
        return (try fields.byte(), fields)
    }

    /// Connects to an agent of this user or of root: it gets private keys.
    private func connect() throws(ProviderError) {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let fits = withUnsafeMutableBytes(of: &address.sun_path) { place in
            guard path.utf8.count < place.count else { return false }
            place.copyBytes(from: path.utf8)
            return true
        }
        guard fits else {
            throw ProviderError(
                .configurationInvalid, "The path of the ssh-agent's socket is too long (\(path)); use a shorter one.")
        }
        var limit = timeval(tv_sec: Int(timeout.components.seconds), tv_usec: 0)
        for option in [SO_SNDTIMEO, SO_RCVTIMEO] {
            setsockopt(descriptor, SOL_SOCKET, option, &limit, socklen_t(MemoryLayout<timeval>.size))
        }
        let result = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard result == 0 else { throw failure }
        // The structure ucred: process, user, group.
        var peer: (pid_t, uid_t, gid_t) = (0, 0, 0)
        var size = socklen_t(MemoryLayout.size(ofValue: peer))
        guard getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 else { throw failure }
        guard peer.1 == geteuid() || peer.1 == 0 else {
            throw ProviderError(
                .configurationInvalid,
                "The ssh-agent at \(path) belongs to the user \(peer.1), who would get the private keys; use an agent of your "
                    + "own.")
        }
    }

    private func send(_ bytes: SecretBytes) throws(ProviderError) {
        try bytes.withUnsafeBytes { bytes throws(ProviderError) in
            var rest = bytes[...]
            while !rest.isEmpty {
                let buffer = UnsafeRawBufferPointer(rebasing: rest)
                rest = rest.dropFirst(
                    try moved(Glibc.send(descriptor, buffer.baseAddress, buffer.count, Int32(MSG_NOSIGNAL))))
            }
        }
    }

    private func receive(_ count: Int) throws(ProviderError) -> [UInt8] {
        var bytes: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: count)
        while bytes.count < count {
            let received = try moved(recv(descriptor, &buffer, count - bytes.count, 0))
            bytes += buffer.prefix(received)
        }
        return bytes
    }

    /// Returns how many bytes a system call has moved: none if it was interrupted.
    private func moved(_ count: Int) throws(ProviderError) -> Int {
        if count < 0, errno != EINTR { throw failure }
        guard count != 0 else {
            throw ProviderError(
                .unavailable,
                "The ssh-agent at \(path) closes the connection instead of answering; check that this is the socket of an "
                    + "agent.")
        }
        guard ContinuousClock.now < deadline else { throw timedOut }
        return max(count, 0)
    }

    private var timedOut: ProviderError {
        ProviderError(
            .timedOut,
            "The ssh-agent at \(path) does not answer within \(timeout.components.seconds) seconds; restart it.")
    }

    /// The error of the last system call.
    private var failure: ProviderError {
        let code = errno
        // The time of a blocking call is over.
        if code == EAGAIN { return timedOut }
        return ProviderError(
            .unavailable,
            "The ssh-agent at \(path) cannot be reached: \(String(cString: strerror(code))). Start an agent, and check the "
                + "path of its socket. The keys of an agent that has ended are gone.")
    }
}

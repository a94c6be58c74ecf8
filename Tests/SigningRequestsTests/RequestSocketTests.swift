import CertificateProviding
import Glibc
import SigningRequests
import TestSupport
import Testing

/// The side of an application, in Swift.
@Suite struct RequestSocketTests {
    private let directory: TemporaryDirectory
    private var path: String { directory["requests.sock"] }

    init() throws { directory = try TemporaryDirectory() }

    private func send(_ request: String = "sima://sign-pdf", within time: Duration = .seconds(600)) async throws
        -> String
    {
        String(decoding: try await RequestSocket.send(request, to: path, within: time), as: UTF8.self)
    }

    private func error(within time: Duration = .seconds(600)) async throws -> ProviderError {
        try await #require(throws: ProviderError.self) { try await send(within: time) }
    }

    /// A signer in Python: takes one connection, and does as the script says.
    private func signer(_ script: String) throws -> Subprocess {
        let signer = try Subprocess([
            "/usr/bin/python3", "-c",
            """
            import socket, sys
            listener = socket.socket(socket.AF_UNIX)
            listener.bind("\(path)")
            listener.listen()
            print("ready", flush=True)
            \(script)
            """,
        ])
        try #require(signer.readLine() == "ready")
        return signer
    }

    @Test("A large request arrives whole, and so does its reply")
    func exchanges() async throws {
        let signer = try signer(
            """
            connection, _ = listener.accept()
            request = b""
            while part := connection.recv(1 << 20): request += part
            connection.sendall(request[::-1])
            """)
        let request = String(repeating: "abcdefgh", count: 1 << 18)
        #expect(try await send(request) == String(request.reversed()))
        withExtendedLifetime(signer) {}
    }

    @Test("Without a signer, the error says which unit to enable")
    func noSigner() async throws {
        for isStale in [false, true] {
            if isStale {
                let signer = try signer("")
                _ = signer.wait(seconds: 600)
                #expect(FileStatus(path) != nil)
            }
            let error = try await error()
            #expect(error.code == .unavailable, "\(error)")
            #expect(error.message.contains("systemctl --user enable --now certprov-requests.socket"), "\(error)")
        }
    }

    @Test("The end without a reply is no reply")
    func noReply() async throws {
        let signer = try signer("connection, _ = listener.accept()\nconnection.close()")
        #expect(try await send(String(repeating: "x", count: 1 << 22)).isEmpty)
        withExtendedLifetime(signer) {}
    }

    @Test(
        "A reply that does not come in time is an error of its own",
        arguments: [
            // Takes no connection, and takes one and reads nothing.
            "sys.stdin.read()", "connection, _ = listener.accept()\nsys.stdin.read()",
        ])
    func notInTime(script: String) async throws {
        let signer = try signer(script)
        #expect(try await error(within: .milliseconds(50)).code == .timedOut)
        withExtendedLifetime(signer) {}
    }

    @Test("A full backlog is waited for, and not for longer than told")
    func fullBacklog() async throws {
        let signer = try signer(
            """
            listener.listen(0)
            waiting = [socket.socket(socket.AF_UNIX) for _ in range(2)]
            for client in waiting: client.setblocking(False)
            try:
                for client in waiting: client.connect("\(path)")
            except BlockingIOError: print("full", flush=True)
            sys.stdin.read()
            """)
        try #require(signer.readLine() == "full")
        #expect(try await error(within: .milliseconds(50)).code == .timedOut)
    }

    @Test("A cancelled task gives its request up, and the signer sees that")
    func cancelled() async throws {
        let signer = try signer(
            """
            connection, _ = listener.accept()
            while connection.recv(1 << 20): pass
            print("waits", flush=True)
            import select
            poll = select.poll()
            poll.register(connection, 0)
            print(poll.poll()[0][1] & select.POLLHUP, flush=True)
            """)
        let task = Task { try await send() }
        // The task needs a thread of the pool.
        try #require(await signer.nextLine() == "waits")
        task.cancel()
        let error = try await #require(throws: ProviderError.self) { try await task.value }
        #expect(error.code == .userCancelled)
        #expect(await signer.nextLine() == "16")
    }

    @Test(
        "A signer of another user gets no request",
        .enabled(if: geteuid() == 0, "only root can become another user"))
    func anotherUser() async throws {
        #expect(chmod(directory.path, 0o777) == 0)
        let signer = try Subprocess([
            "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", "-c",
            """
            import socket
            listener = socket.socket(socket.AF_UNIX)
            listener.bind("\(path)")
            listener.listen()
            print("ready", flush=True)
            connection, _ = listener.accept()
            print(len(connection.recv(100)), flush=True)
            """,
        ])
        try #require(signer.readLine() == "ready")
        #expect(try await error().code == .rejected)
        #expect(signer.readLine() == "0")
    }
}

import CertificateProviding
import Glibc
import HostSockets
import Logging
import SigningRequests
import Synchronization
import TestSupport
import Testing

/// The socket of a signer, and applications that do as they like.
@Suite struct RequestListenerTests {
    private let directory: TemporaryDirectory
    private var path: String { directory["requests.sock"] }

    init() throws { directory = try TemporaryDirectory() }

    private func limits(_ change: (inout RequestListener.Limits) -> Void = { _ in }) -> RequestListener.Limits {
        var limits = RequestListener.Limits(largest: 1 << 20)
        // Between two steps of an application here, the threads that run tasks may have to do for others.
        limits.time = .seconds(600)
        change(&limits)
        return limits
    }

    /// Listens while `body` runs.
    private func listening<T: Sendable>(
        _ limits: RequestListener.Limits, handle: @escaping RequestListener.Handler,
        _ body: @escaping @Sendable () async throws -> T
    ) async throws -> T {
        let listener = RequestListener(
            try ListeningSocket(at: path, setting: "--socket"), limits, logger: TestLog().logger, handle: handle)
        return try await withThrowingTaskGroup(of: T?.self) { group in
            group.addTask {
                try await listener.run()
                return nil
            }
            group.addTask { try await body() }
            while let result = try await group.next() {
                guard let result else { continue }
                group.cancelAll()
                return result
            }
            throw Subprocess.Failure(description: "the listener has ended")
        }
    }

    /// Replies with the request, and counts.
    private final class Echo: Sendable {
        private let state = Mutex<(requests: [String], now: Int, most: Int)>(([], 0, 0))
        var requests: [String] { state.withLock(\.requests) }
        var most: Int { state.withLock(\.most) }

        func handle(_ request: [UInt8]) async -> String {
            let text = String(decoding: request, as: UTF8.self)
            state.withLock { state in
                state.requests.append(text.count > 1000 ? "\(text.count) bytes" : text)
                state.now += 1
                state.most = max(state.most, state.now)
            }
            await Task.yield()
            state.withLock { $0.now -= 1 }
            return "reply to \(text.prefix(100))"
        }
    }

    @Test("A request gets its reply and the end, at a socket that only this user can reach")
    func answers() async throws {
        let (path, peers) = (path, Echo())
        try await listening(limits()) { request, peer, _ in
            _ = await peers.handle(Array(peer.utf8))
            return "reply to \(request.count) bytes"
        } _: { () async throws in
            #expect(FileStatus(path)?.permissions == 0o600)
            #expect(try await Application.exchange("hello", at: path) == "reply to 5 bytes")
            #expect(try await Application.exchange("", at: path) == "reply to 0 bytes")
        }
        let peer = try #require(peers.requests.first)
        #expect(peer.contains(Subprocess.ownProgram) && peer.hasSuffix("process \(getpid())"), "\(peer)")
        #expect(FileStatus(path) == nil, "the file stays")
    }

    @Test("A thousand requests at once get a reply each, and 64 are answered at one time")
    func aThousand() async throws {
        let (path, echo) = (path, Echo())
        let output = try await listening(limits()) { request, _, _ in
            await echo.handle(request)
        } _: { () async throws in
            try await Application.run(
                """
                import socket, sys
                clients = []
                for number in range(1000):
                    client = socket.socket(socket.AF_UNIX)
                    client.connect(sys.argv[1])
                    clients.append(client)
                for number, client in enumerate(clients): client.sendall(b"number %d" % number)
                for client in clients: client.shutdown(socket.SHUT_WR)
                replies = 0
                for number, client in enumerate(clients):
                    reply = b""
                    while part := client.recv(65536): reply += part
                    replies += reply == b"reply to number %d" % number
                print(replies)
                """, path)
        }
        #expect(output == "1000\n")
        #expect(echo.requests.count == 1000 && Set(echo.requests).count == 1000)
        #expect(echo.most <= 64)
    }

    @Test("Half-open and slow applications cost others nothing, and lose their place in time")
    func slowApplications() async throws {
        let (path, echo) = (path, Echo())
        try await listening(
            limits {
                $0.time = .seconds(5)
                $0.connections = 8
            }
        ) { request, _, _ in
            await echo.handle(request)
        } _: { () async throws in
            let slow = try (0..<7).map { _ in try Application(path) }
            try await slow[0].write("a")
            #expect(try await Application.exchange("while they wait", at: path) == "reply to while they wait")
            // All places are taken: the next one waits for the time of the others.
            let last = try Application(path)
            try await last.write("b")
            #expect(try await Application.exchange("afterwards", at: path) == "reply to afterwards")
            for application in slow + [last] { #expect(try await application.reply() == "") }
        }
        #expect(echo.requests == ["while they wait", "afterwards"])
    }

    @Test("A byte now and then prolongs nothing")
    func aByteNowAndThen() async throws {
        let (path, echo) = (path, Echo())
        try await listening(limits { $0.time = .milliseconds(300) }) { request, _, _ in
            await echo.handle(request)
        } _: { () async throws in
            _ = try await Application.run(
                """
                import socket, sys, time
                client = socket.socket(socket.AF_UNIX)
                client.connect(sys.argv[1])
                try:
                    while True:
                        client.sendall(b"x")
                        time.sleep(0.02)
                except BrokenPipeError: pass
                assert client.recv(1) == b""
                """, path)
        }
        #expect(echo.requests.isEmpty)
    }

    @Test("Of a request that is too large, one byte too many is kept, and it gets a reply")
    func tooLarge() async throws {
        let (path, echo) = (path, Echo())
        let limits = limits()
        try await listening(limits) { request, _, _ in
            await echo.handle(request)
        } _: { () async throws in
            let application = try Application(path)
            for _ in 0..<16 { try await application.write(String(repeating: "x", count: 1 << 20)) }
            application.finish()
            #expect(try await application.reply().hasPrefix("reply to xxx"))
        }
        #expect(limits.largest < 16 << 20)
        #expect(echo.requests == ["\(limits.largest + 1) bytes"])
    }

    @Test("One request at a time goes beyond the size that all may have; small ones go on")
    func oneLargeRequestAtATime() async throws {
        let (path, echo) = (path, Echo())
        let large = String(repeating: "x", count: 3000)
        try await listening(limits { $0.shared = 1000 }) { request, _, _ in
            await echo.handle(request)
        } _: { () async throws in
            let first = try Application(path)
            try await first.write(large)
            _ = try await Application.exchange("1", at: path)
            let second = try Application(path)
            try await second.write(large + large)
            second.finish()
            // The thread that would have answered the second comes by twice.
            _ = try await Application.exchange("2", at: path)
            _ = try await Application.exchange("3", at: path)
            #expect(echo.requests == ["1", "2", "3"])
            first.finish()
            #expect(try await first.reply().hasPrefix("reply to"))
            #expect(try await second.reply().hasPrefix("reply to"))
        }
        #expect(echo.requests == ["1", "2", "3", "3000 bytes", "6000 bytes"])
    }

    @Test("A large request that is held no more, and waits for its reply, leaves its place to the next")
    func aLargeRequestThatWaits() async throws {
        let (path, echo, mayReply) = (path, Echo(), Gate())
        let large = String(repeating: "x", count: 3000)
        try await listening(limits { $0.shared = 1000 }) { request, _, release in
            let isFirst = request.first == UInt8(ascii: "1")
            let reply = await echo.handle(request)
            if isFirst {
                release()
                await mayReply.wait()
            }
            return reply
        } _: { () async throws in
            let first = try Application(path)
            try await first.write("1" + large)
            first.finish()
            #expect(try await Application.exchange("2" + large, at: path).hasPrefix("reply to 2"))
            mayReply.open()
            #expect(try await first.reply().hasPrefix("reply to 1"))
        }
    }

    @Test("A large request that stalls gives its place to the next")
    func aLargeRequestThatStalls() async throws {
        let (path, echo) = (path, Echo())
        let large = String(repeating: "x", count: 3000)
        try await listening(
            limits {
                $0.shared = 1000
                $0.time = .seconds(5)
            }
        ) { request, _, _ in
            await echo.handle(request)
        } _: { () async throws in
            let stalled = try Application(path)
            try await stalled.write(large)
            _ = try await Application.exchange("1", at: path)
            #expect(try await Application.exchange(large, at: path).hasPrefix("reply to"))
            #expect(try await stalled.reply() == "")
        }
        #expect(echo.requests == ["1", "3000 bytes"])
    }

    @Test("A request is given up when its application closes both directions, and not when it closes one")
    func theApplicationGoes() async throws {
        let path = path
        let (began, mayReply) = (Gate(), Gate())
        let cancelled = Gate()
        try await listening(limits { $0.connections = 2 }) { request, _, _ in
            if request == Array("quick".utf8) { return "quick" }
            began.open()
            return await withTaskCancellationHandler {
                await (request == Array("stays".utf8) ? mayReply : cancelled).wait()
                return Task.isCancelled ? "cancelled" : "not cancelled"
            } onCancel: {
                cancelled.open()
            }
        } _: { () async throws in
            let goes = try Application(path)
            try await goes.write("goes")
            goes.finish()
            await began.wait()
            goes.close()
            await cancelled.wait()
            let stays = try Application(path)
            try await stays.write("stays")
            stays.finish()
            #expect(try await Application.exchange("quick", at: path) == "quick")
            mayReply.open()
            #expect(try await stays.reply() == "not cancelled")
        }
    }

    @Test("An application that closes both directions before its request is taken is asked for nothing")
    func theApplicationIsGoneAlready() async throws {
        let (path, echo) = (path, Echo())
        try await listening(limits { $0.connections = 1 }) { request, _, _ in
            await echo.handle(request)
        } _: { () async throws in
            let holder = try Application(path)
            let gone = try Application(path)
            try await gone.write("gone")
            gone.close()
            try await holder.write("holder")
            holder.finish()
            #expect(try await holder.reply() == "reply to holder")
            #expect(try await Application.exchange("next", at: path) == "reply to next")
        }
        #expect(echo.requests == ["holder", "next"])
    }

    @Test("An application that never reads its reply loses its place in time")
    func neverReads() async throws {
        let path = path
        try await listening(
            limits {
                $0.time = .seconds(5)
                $0.connections = 1
            }
        ) { request, _, _ in
            String(repeating: "r", count: request.count == 1 ? 8 << 20 : 10)
        } _: { () async throws in
            let silent = try Application(path)
            try await silent.write("x")
            silent.finish()
            #expect(try await Application.exchange("next", at: path) == "rrrrrrrrrr")
            // The part that the kernel had taken, and then the end.
            #expect(try await silent.reply().count < 8 << 20)
        }
    }

    @Test("A large reply arrives whole")
    func aLargeReply() async throws {
        let path = path
        try await listening(limits()) { request, _, _ in
            String(repeating: "r", count: 8 << 20)
        } _: { () async throws in
            #expect(try await Application.exchange("x", at: path) == String(repeating: "r", count: 8 << 20))
        }
    }

    @Test(
        "A process of another user gets no byte, and its request is not looked at",
        .enabled(if: geteuid() == 0, "only root can become another user"))
    func anotherUser() async throws {
        let (path, echo) = (path, Echo())
        try await listening(limits()) { request, _, _ in
            await echo.handle(request)
        } _: { () async throws in
            #expect(chmod(directory.path, 0o711) == 0 && chmod(path, 0o666) == 0)
            let script = """
                import socket, sys
                client = socket.socket(socket.AF_UNIX)
                client.connect(sys.argv[1])
                try:
                    client.sendall(b"request")
                    client.shutdown(socket.SHUT_WR)
                    print(len(client.recv(1)))
                except (BrokenPipeError, ConnectionResetError): print(0)
                """
            let asAnother = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
            #expect(try await Application.run(script, path, through: asAnother) == "0\n")
            #expect(try await Application.exchange("own", at: path) == "reply to own")
            #expect(try await Application.run(script, path) == "1\n")
        }
        #expect(echo.requests == ["own", "request"])
    }
}

/// An application with one connection. Calls that block have a thread of their own.
final class Application: Sendable {
    private let descriptor: Mutex<Int32>
    private let threads = BlockingExecutor.threads(maximum: 1)

    init(_ path: String) throws {
        let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8).prefix($0.count - 1)) }
        let status = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        self.descriptor = Mutex(descriptor)
        guard status == 0 else { throw Subprocess.Failure(description: "connect: \(errno)") }
    }

    deinit { close() }

    /// - Parameter isAll: Whether the writing side is closed then.
    func write(_ text: String, isAll: Bool = false) async throws {
        let descriptor = descriptor.withLock { $0 }
        let isWhole = try await threads.run { () throws(ProviderError) in
            var rest = Array(text.utf8)[...]
            while !rest.isEmpty {
                let count = rest.withUnsafeBytes { send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
                guard count > 0 else { return false }
                rest = rest.dropFirst(count)
            }
            if isAll { shutdown(descriptor, Int32(SHUT_WR)) }
            return true
        }
        if !isWhole { throw Subprocess.Failure(description: "send: \(errno)") }
    }

    /// Closes the writing side.
    func finish() { _ = descriptor.withLock { shutdown($0, Int32(SHUT_WR)) } }

    func close() {
        descriptor.withLock { descriptor in
            if descriptor >= 0 { Glibc.close(descriptor) }
            descriptor = -1
        }
    }

    /// All that comes until the end.
    func reply() async throws -> String {
        let descriptor = descriptor.withLock { $0 }
        return try await threads.run { () throws(ProviderError) in
            var (reply, buffer) = ([UInt8](), [UInt8](repeating: 0, count: 1 << 16))
            while case let count = recv(descriptor, &buffer, buffer.count, 0), count > 0 { reply += buffer[..<count] }
            return String(decoding: reply, as: UTF8.self)
        }
    }

    static func exchange(_ request: String, at path: String) async throws -> String {
        let application = try Application(path)
        try await application.write(request, isAll: true)
        return try await application.reply()
    }

    /// Runs a script of Python with a path, and returns its output.
    static func run(_ script: String, _ path: String, through program: [String] = []) async throws -> String {
        let output = try await BlockingExecutor.threads(maximum: 1).run { () throws(ProviderError) in
            do {
                return try Subprocess.run(
                    program + ["sh", "-c", "ulimit -n 4096; exec \"$@\"", "sh", "/usr/bin/python3", "-c", script, path])
            } catch { throw ProviderError(.internal, "\(error)") }
        }
        return String(decoding: output, as: UTF8.self)
    }
}

/// A task waits here until another one has done its part.
final class Gate: Sendable {
    private let state = Mutex<(isOpen: Bool, waiting: [CheckedContinuation<Void, Never>])>((false, []))

    func open() {
        let waiting = state.withLock { state in
            state.isOpen = true
            defer { state.waiting = [] }
            return state.waiting
        }
        for continuation in waiting { continuation.resume() }
    }

    func wait() async {
        await withCheckedContinuation { continuation in
            let isOpen = state.withLock { state in
                if !state.isOpen { state.waiting.append(continuation) }
                return state.isOpen
            }
            if isOpen { continuation.resume() }
        }
    }
}

extension Subprocess {
    fileprivate static var ownProgram: String {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let length = readlink("/proc/self/exe", &buffer, buffer.count)
        return String(decoding: buffer.prefix(max(0, length)), as: UTF8.self)
    }
}

import CertificateProviding
import Foundation
import Glibc
import HostSockets
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import HostService

/// The socket, with callers of this process and others.
@Suite struct PKCS11SocketTests {
    private let directory: TemporaryDirectory
    private let log = TestLog()
    private let host: TestHost
    private var path: String { directory["p11.sock"] }

    init() throws {
        directory = try TemporaryDirectory()
        host = TestHost([.init("web", try TestAuthority().issue("web"), grants: [Self.grant(geteuid())])])
    }

    private static func grant(_ user: uid_t) -> Grants.Grant {
        .init(name: "Serve.allow.1", [.user(user)], text: "uid:\(user)")
    }

    private func start(
        _ limits: HostListener.Limits = .init(total: 2048, perUser: 2048), limit: Duration = .seconds(600)
    ) async throws -> PKCS11Socket {
        let socket = PKCS11Socket(
            [try ListeningSocket(at: path, setting: "Serve.pkcs11-socket", mode: 0o666)],
            served: { [host] in host.served.withLock { $0 ?? [] } }, logger: log.logger, limits: limits, limit: limit)
        try await socket.start(on: MultiThreadedEventLoopGroup.singleton)
        return socket
    }

    private func sign(_ dialogue: TokenDialogue, _ key: UInt64) async throws {
        try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, key)
        let signature = try await dialogue.sign(DigestAlgorithm.sha256.digest(of: [1])).signature
        try #require(signature?.count == 64)
    }

    @Test("A caller gets the lower version of the protocol, and gets signatures", arguments: [0, 1, 2, 255] as [UInt8])
    func versions(version: UInt8) async throws {
        let socket = try await start()
        #expect(mode_t(try #require(FileStatus(path)).permissions) == 0o666)
        try await SocketCaller(path).withDialogue(version: version) { dialogue in
            try await dialogue.begin()
            try await sign(dialogue, try #require(try await dialogue.find(.privateKey, "web").first))
            #expect(socket.connections == 1)
        }
        while socket.connections > 0 { try await Task.sleep(for: .milliseconds(1)) }
        await socket.stop()
        #expect(FileStatus(path) == nil)
    }

    @Test("A caller that loses its grant between two signatures gets no further one, and the log says why")
    func lostGrant() async throws {
        let socket = try await start()
        let identity = try #require(host.served.withLock { $0?.first?.current })
        try await SocketCaller(path).withDialogue { dialogue in
            try await dialogue.begin()
            let key = try #require(try await dialogue.find(.privateKey, "web").first)
            try await sign(dialogue, key)
            try await dialogue.signInit(TokenMechanism.ecdsa.rawValue, key)
            host.set([.init("web", identity, grants: [Self.grant(54321)])])
            await #expect(throws: ReturnCode.keyHandleInvalid) {
                try await dialogue.sign(DigestAlgorithm.sha256.digest(of: [1]))
            }
            await #expect(throws: ReturnCode.keyHandleInvalid) { try await sign(dialogue, key) }
            #expect(try await dialogue.find().isEmpty)
            #expect(log.warnings.count == 1 && log.warnings[0].contains("Serve.allow.1 (uid:54321)"), "\(log.text)")
            // Granted again, the handle is the same.
            host.set([.init("web", identity, grants: [Self.grant(geteuid())])])
            try await sign(dialogue, key)
        }
        await socket.stop()
    }

    @Test("A caller that loses its grant while the key takes its time gets no signature")
    func lostGrantMeanwhile() async throws {
        let web = try #require(host.served.withLock { $0?.first?.current })
        let key = WaitingKey(web.key)
        let slow = try Identity(certificateChain: web.certificateChain, key: key, provenance: web.provenance)
        host.set([.init("web", slow, grants: [Self.grant(geteuid())])])
        let socket = try await start()
        let caller = Task {
            try await SocketCaller(path).withDialogue { dialogue in
                try await dialogue.begin()
                let handle = try #require(try await dialogue.find(.privateKey, "web").first)
                await #expect(throws: ReturnCode.keyHandleInvalid) { try await sign(dialogue, handle) }
            }
        }
        while key.waitingCount < 1 { try await Task.sleep(for: .milliseconds(1)) }
        host.set([.init("web", slow, grants: [Self.grant(54321)])])
        key.open()
        try await caller.value
        await socket.stop()
    }

    @Test("A message that is too large ends its connection, and no other one")
    func tooLarge() async throws {
        let socket = try await start()
        try await SocketCaller(path).withDialogue { dialogue in
            try await dialogue.begin()
            let large = RPCFrame(number: 0, body: Array(repeating: 0, count: RPCFrame.largest + 1)).bytes
            for bytes in [[0] + large, [0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]] as [[UInt8]] {
                #expect(try await SocketCaller(path).exchange(bytes) == [0])
            }
            #expect(try await dialogue.find(.privateKey, "web").count == 1)
        }
        await socket.stop()
    }

    @Test("A message that is not whole in time ends its connection")
    func halfMessages() async throws {
        let socket = try await start(limit: .milliseconds(100))
        for bytes in [[], [0, 0, 0, 0], [0] + RPCFrame(number: 0, body: [1, 2, 3]).bytes.dropLast()] as [[UInt8]] {
            // The time may be over before the first byte.
            let answer = try await SocketCaller(path).exchange(bytes)
            #expect(answer.isEmpty || answer == Array(bytes.prefix(1)))
        }
        await socket.stop()
    }

    @Test("Options are passed over, and several messages at once are answered in their order")
    func framing() async throws {
        let socket = try await start()
        let body = RPCWriter(RPCFunction.getInfo.rawValue, "").bytes
        let options: [UInt8] = [0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, UInt8(body.count), 1, 2] + body
        let frames = options + (8..<40).flatMap { RPCFrame(number: $0, body: body).bytes }
        // The last one is too large, which ends the connection.
        var answer = try await SocketCaller(path).exchange([1] + frames + Array(repeating: 0xff, count: 12))
        try #require(answer.removeFirst() == 1)
        for number in 7..<40 as Range<UInt32> {
            let frame = try #require(try RPCFrame.take(from: &answer))
            #expect(frame.number == number && frame.body == RPCWriter(.cryptokiNotInitialized).bytes)
        }
        #expect(answer.isEmpty)
        await socket.stop()
    }

    @Test(
        "One user has a bounded number of connections, two thousand are answered, and all of them are closed at the end"
    )
    func manyConnections() async throws {
        let count = 2000
        let socket = try await start(.init(total: 5000, perUser: count))
        let clients = try Subprocess([
            "/usr/bin/python3", "-c",
            """
            import resource, socket, sys
            resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
            open = []
            answered = 0
            for _ in range(int(sys.argv[2]) + 10):
                one = socket.socket(socket.AF_UNIX)
                one.connect(sys.argv[1])
                try:
                    one.sendall(b"\\0")
                    answered += len(one.recv(1))
                except ConnectionError: pass
                open.append(one)
            print(answered, flush=True)
            print(sum(one.recv(1) == b"" for one in open[:answered]), flush=True)
            """, path, "\(count)",
        ])
        #expect(await clients.nextLine() == "\(count)")
        #expect(socket.connections == count)
        #expect(log.warnings.count { $0.contains("one too many") } == 1, "\(log.text)")
        await socket.stop()
        #expect(await clients.nextLine() == "\(count)")
    }

    @Test("A key that does not answer holds no thread, and its calls count after the end of their connections")
    func waitingKey() async throws {
        let slow = try TestAuthority().issue("slow")
        let key = WaitingKey(slow.key)
        let waiting = try Identity(
            certificateChain: slow.certificateChain, key: key, provenance: slow.provenance)
        let web = try #require(host.served.withLock { $0?.first?.current })
        let grants = [Self.grant(geteuid())]
        host.set([.init("slow", waiting, grants: grants), .init("web", web, grants: grants)])
        let count = 20
        let socket = try await start(.init(total: 100, perUser: count + 1))
        let callers = (0..<count).map { _ in
            Task {
                try await SocketCaller(path).withDialogue { dialogue in
                    try await dialogue.begin()
                    try await sign(dialogue, try #require(try await dialogue.find(.privateKey, "slow").first))
                }
            }
        }
        while key.waitingCount < count { try await Task.sleep(for: .milliseconds(1)) }
        try await SocketCaller(path).withDialogue { dialogue in
            try await dialogue.begin()
            try await sign(dialogue, try #require(try await dialogue.find(.privateKey, "web").first))
        }
        for caller in callers { caller.cancel() }
        while socket.connections > 0 { try await Task.sleep(for: .milliseconds(1)) }
        try await SocketCaller(path).withDialogue { dialogue in
            try await dialogue.begin()
            #expect(try await SocketCaller(path).exchange([0]).isEmpty)
        }
        key.open()
        for caller in callers { _ = await caller.result }
        let all = try await withThrowingTaskGroup(of: Void.self) { tasks in
            for _ in 0..<count {
                tasks.addTask {
                    // Those that have ended get free one by one.
                    while (try? await SocketCaller(path).withDialogue { try await $0.begin() }) == nil {
                        try await Task.sleep(for: .milliseconds(1))
                    }
                }
            }
            return try await tasks.reduce(0) { count, _ in count + 1 }
        }
        #expect(all == count)
        await socket.stop()
    }

    @Test("A connection whose process has ended is closed, even if its child asks")
    func endedProcess() async throws {
        let socket = try await start()
        let message = RPCFrame(
            number: 1,
            body: {
                var writer = RPCWriter(RPCFunction.initialize.rawValue, "ayyay")
                writer.write(TokenDialogue.handshake, room: .max)
                writer.write(byte: 0)
                writer.write([0], room: .max)
                return writer.bytes
            }()
        ).bytes
        let open = RPCFrame(
            number: 2,
            body: {
                var writer = RPCWriter(RPCFunction.openSession.rawValue, "uu")
                writer.write(0)
                writer.write(4)
                return writer.bytes
            }()
        ).bytes
        let child = try Subprocess([
            "/usr/bin/python3", "-c",
            """
            import os, socket, sys
            one = socket.socket(socket.AF_UNIX)
            one.connect(sys.argv[1])
            one.sendall(b"\\0" + bytes.fromhex(sys.argv[2]) + bytes.fromhex(sys.argv[3]))
            received = b""
            while len(received) < 1 + 12 + 8 + 12 + 17: received += one.recv(100)
            session = received[-8:]
            parent = os.getpid()
            if os.fork(): os._exit(0)
            while os.getppid() == parent: pass
            # C_FindObjectsInit without attributes.
            body = bytes([0, 0, 0, 26, 0, 0, 0, 3]) + b"uaA" + session + bytes(4)
            try:
                one.sendall(bytes([0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, len(body)]) + body)
                print("answer", one.recv(100).hex(), flush=True)
            except ConnectionError: print("answer ", flush=True)
            """, path, message.hexEncoded, open.hexEncoded,
        ])
        #expect(await child.nextLine() == "answer ")
        while socket.connections > 0 { try await Task.sleep(for: .milliseconds(1)) }
        await socket.stop()
    }
}

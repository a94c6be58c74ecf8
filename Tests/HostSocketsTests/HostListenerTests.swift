import CertificateProviding
import Glibc
import Logging
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import HostSockets

@Suite struct HostListenerTests {
    @Test("One user has a bounded number of connections, and gets places back")
    func bounds() async throws {
        let directory = try TemporaryDirectory()
        let path = directory["a.sock"]
        let log = TestLog()
        let taken = Mutex(0)
        let listener = try await HostListener(
            ListeningSocket(at: path, setting: "--socket"), .init(total: 10, perUser: 3),
            on: MultiThreadedEventLoopGroup.singleton,
            logger: log.logger
        ) { channel, peer in
            taken.withLock { $0 += peer.user == geteuid() ? 1 : 100 }
            return channel.setOption(.autoRead, value: true)
        }
        func connect() async throws -> any Channel {
            try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton).connect(unixDomainSocketPath: path)
                .get()
        }
        var open: [any Channel] = []
        for _ in 0..<3 { open.append(try await connect()) }
        for _ in 0..<2 { try await connect().closeFuture.get() }
        #expect(taken.withLock(\.self) == 3)
        #expect(log.warnings.count == 1, "\(log.text)")
        for channel in open { try await channel.close() }
        while taken.withLock(\.self) < 4 {
            let channel = try await connect()
            try await Task.sleep(for: .milliseconds(1))
            try? await channel.close()
        }
        await listener.stop()
        #expect(FileStatus(path) == nil)
    }

    @Test("A connection for which there is no place can get an answer")
    func overflow() async throws {
        let directory = try TemporaryDirectory()
        let listener = try await HostListener(
            ListeningSocket(at: directory["a.sock"], setting: "--socket"), .init(total: 0, perUser: 0),
            on: MultiThreadedEventLoopGroup.singleton, logger: TestLog().logger,
            overflow: { channel, _ in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Full())
                }
            }
        ) { channel, _ in channel.eventLoop.makeSucceededVoidFuture() }
        let client = try Subprocess([
            "/usr/bin/python3", "-c",
            """
            import socket, sys
            one = socket.socket(socket.AF_UNIX)
            one.connect(sys.argv[1])
            print(one.recv(10).decode(), one.recv(10) == b"", flush=True)
            """, directory["a.sock"],
        ])
        #expect(await client.nextLine() == "full True")
        await listener.stop()
    }

    private final class Full: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        func channelActive(context: ChannelHandlerContext) {
            let channel = context.channel
            channel.writeAndFlush(ByteBuffer(string: "full")).whenComplete { _ in channel.close(promise: nil) }
        }
    }

    @Test("All sockets of a process have a bounded number of connections, and the log says how to have more")
    func boundOfProcess() async throws {
        let directory = try TemporaryDirectory()
        let log = TestLog()
        let (places, taken) = (Places<Int>(total: 1, each: .max), TestLog())
        var channels: [any Channel] = []
        var listeners: [HostListener] = []
        for name in ["a", "b"] {
            listeners.append(
                try await HostListener(
                    ListeningSocket(at: directory[name], setting: "--socket"), .init(total: 10, perUser: 10),
                    on: MultiThreadedEventLoopGroup.singleton, places: places, logger: log.logger
                ) { channel, _ in
                    taken.logger.info("taken")
                    return channel.setOption(.autoRead, value: true)
                })
            channels.append(
                try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
                    .connect(unixDomainSocketPath: directory[name]).get())
            // The first one, before the second one is made.
            while taken.lines.isEmpty { try await Task.sleep(for: .milliseconds(1)) }
        }
        try await channels[1].closeFuture.get()
        #expect(log.warnings.count == 1 && log.warnings[0].contains("LimitNOFILE"), "\(log.text)")
        try await channels[0].close()
        for listener in listeners { await listener.stop() }
    }

    @Test(
        "A limit of descriptors leaves some to the rest of the process",
        arguments: [(65_536, 32_640), (1024, 384), (64, 16)])
    func descriptors(limit: rlim_t, connections: Int) { #expect(Places<Int>.connections(limit) == connections) }

    @Test("A line is due once a minute with its count, and others than the bounded number share one")
    func lines() {
        let clock = Mutex(ContinuousClock.now)
        let lines = RepeatedLines { clock.withLock(\.self) }
        #expect(lines.note("a") == 1 && lines.note("a") == nil && lines.note("b") == 1)
        clock.withLock { $0 += .seconds(61) }
        #expect(lines.note("a") == 2 && lines.note("a") == nil)
        for number in 0..<5000 { _ = lines.note("\(number)") }
        #expect(lines.note("another") == nil)
    }
}

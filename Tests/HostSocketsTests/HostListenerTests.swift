import CertificateProviding
import Glibc
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

import CertificateProviding
import Dispatch
import Foundation
import Glibc
import Synchronization
import Testing

@testable import PluginProtocol

/// One side of a connection; the test is the other one.
@Suite(.timeLimit(.minutes(20))) struct MessageChannelTests {
    /// Answers a request with its name, when the test says so.
    private final class Services: PeerServices {
        let first = DispatchSemaphore(value: 0)
        let second = DispatchSemaphore(value: 0)
        private let executor = BlockingExecutor.threads()

        func receive(_ request: IncomingRequest, from peer: Peer) {
            peer.perform(request, on: executor) { [self] () throws(ProviderError) in
                (request.name == "first" ? first : second).wait()
                return [request.name]
            }
        }
        func receive(notice name: String, _ message: Message, from peer: Peer) {}
        func ended(_ error: ProviderError) {}
    }

    /// Finds out why the connection has ended, when the test says so.
    private final class Explaining: PeerServices {
        let isAsked = DispatchSemaphore(value: 0)
        let answers = DispatchSemaphore(value: 0)

        func receive(_ request: IncomingRequest, from peer: Peer) {}
        func receive(notice name: String, _ message: Message, from peer: Peer) {}
        func explain(_ error: ProviderError) -> ProviderError {
            isAsked.signal()
            answers.wait()
            return ProviderError(.unavailable, "It has ended with the status 3.")
        }
        func ended(_ error: ProviderError) {}
    }

    /// Notes which cancellations are ignored.
    private final class Noting: PeerServices {
        let ignored = Mutex<[String]>([])

        func receive(_ request: IncomingRequest, from peer: Peer) {}
        func receive(notice name: String, _ message: Message, from peer: Peer) {}
        func cancellationWasIgnored(_ request: String) { ignored.withLock { $0.append(request) } }
        func ended(_ error: ProviderError) {}
    }

    struct Connection<Services: PeerServices> {
        let services: Services
        let peer: Peer
        private let input: Int32
        private let output: Int32

        init(_ services: Services, trace: MessageChannel.Trace? = nil) throws {
            self.services = services
            var (there, back): ([Int32], [Int32]) = ([0, 0], [0, 0])
            try #require(pipe(&there) == 0 && pipe(&back) == 0)
            let channel = try MessageChannel(
                input: there[0], output: back[1], peer: "The plugin 'test'", trace: trace)
            peer = Peer(channel, services)
            (output, input) = (there[1], back[0])
            peer.start()
        }

        func send(_ line: String, end: String = "\n") throws {
            let bytes = Array((line + end).utf8)
            try #require(write(output, bytes, bytes.count) == bytes.count)
        }

        /// - Returns: The next line; `nil` if none comes in that time.
        func line(atMost milliseconds: Int32 = 60_000) -> String? {
            var line: [UInt8] = []
            while line.last != 0x0a {
                var waiting = pollfd(fd: input, events: Int16(POLLIN), revents: 0)
                guard poll(&waiting, 1, milliseconds) > 0 else { return nil }
                var byte: UInt8 = 0
                guard read(input, &byte, 1) == 1 else { return nil }
                line.append(byte)
            }
            return String(decoding: line, as: UTF8.self)
        }

        /// The other side sees the end of its input.
        func hangUp() { close(output) }

        func end() {
            hangUp()
            closeRest()
        }

        func closeRest() {
            while line() != nil {}
            close(input)
        }
    }

    /// How a process has ended is known a while after its pipe has: a request of that time is not told less than the others.
    @Test func aRequestAfterTheEndIsToldTheReason() throws {
        let connection = try Connection(Explaining())
        defer { connection.closeRest() }
        let channel = connection.peer.channel
        let errors = Mutex<[String]>([])
        let ended = DispatchGroup()
        func send() {
            ended.enter()
            channel.send("describe", [String](), .unlimited) { result in
                if case .failure(let error) = result { errors.withLock { $0.append(error.message) } }
                ended.leave()
            }
        }
        send()
        connection.hangUp()
        connection.services.isAsked.wait()
        send()
        #expect(errors.withLock(\.self).isEmpty)
        connection.services.answers.signal()
        ended.wait()
        send()
        ended.wait()
        #expect(errors.withLock(\.self) == Array(repeating: "It has ended with the status 3.", count: 3))
    }

    @Test("A line without its end is named when the time is over, and at the end of the connection")
    func aMissingNewlineIsNamed() throws {
        let trace = Mutex<[String]>([])
        let connection = try Connection(Noting()) { isSent, line in
            if !isSent { trace.withLock { $0.append(line) } }
        }
        defer { connection.closeRest() }
        let channel = connection.peer.channel
        func failure(_ limit: MessageChannel.Limit, _ body: () throws -> Void) throws -> String? {
            let done = BlockingResult<Message>()
            channel.send("describe", [String](), limit) { done.set($0) }
            try body()
            do { _ = try done.wait().get() } catch { return error.message }
            return nil
        }
        let missing = "It has sent 9 bytes without a newline at their end."
        // They come with a line, in one piece, and so are there when that is.
        try connection.send("{\"notice\":\"first\"}\n{\"id\":1,\"", end: "")
        while trace.withLock(\.isEmpty) { usleep(1000) }
        let late = try failure(.total(.seconds(1))) {}
        #expect(late == "The plugin 'test' did not answer the request 'describe' within 1 seconds. \(missing)")
        let last = try failure(.unlimited) { connection.hangUp() }
        #expect(last == "The plugin 'test' has ended its side of the connection. \(missing)")
        let lines = Array(repeating: "9 bytes without a newline at their end", count: 2)
        #expect(trace.withLock(\.self) == ["notice first {}"] + lines)
    }

    /// The other side may use an id again once it has an answer. Work that goes on after a cancellation ends later.
    @Test func aLateAnswerIsNotThatOfAnotherRequestWithItsID() throws {
        let connection = try Connection(Services())
        defer { connection.end() }
        try connection.send(#"{"id":1,"request":"first","params":{}}"#)
        try connection.send(#"{"notice":"cancel","params":{"request":1}}"#)
        let cancelled = try #require(connection.line())
        #expect(cancelled.contains("userCancelled"), "\(cancelled)")
        try connection.send(#"{"id":1,"request":"second","params":{}}"#)
        connection.services.first.signal()
        #expect(connection.line(atMost: 300) == nil)
        connection.services.second.signal()
        #expect(connection.line()?.contains(#""result":["second"]"#) == true)
    }

    /// The caller goes on with its next call, which is not for a process that is to be ended.
    @Test func anIgnoredCancellationIsNotedBeforeItsRequestEnds() throws {
        let connection = try Connection(Noting())
        defer { connection.end() }
        let (channel, services) = (connection.peer.channel, connection.services)
        var id: UInt64 = 0
        let ended = BlockingResult<[String]>()
        channel.send("obtain", [String](), .unlimited, starting: { id = $0 }) { _ in
            ended.set(.success(services.ignored.withLock(\.self)))
        }
        channel.cancel(id)
        #expect(try ended.wait().get() == ["obtain"])
    }

    @Test func anOpenRequestKeepsItsID() throws {
        let connection = try Connection(Services())
        defer { connection.end() }
        try connection.send(#"{"id":1,"request":"first","params":{}}"#)
        try connection.send(#"{"id":1,"request":"second","params":{}}"#)
        #expect(connection.line() == nil, "The connection ends.")
        for gate in [connection.services.first, connection.services.second] { gate.signal() }
    }
}

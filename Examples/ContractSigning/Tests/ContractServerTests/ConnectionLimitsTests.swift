import HTTPTypes
import NIOCore
import NIOEmbedded
import NIOHTTPTypes
import Synchronization
import Testing

@testable import ContractServer

@Suite("The limits of a connection")
struct ConnectionLimitsTests {
    private let closes = OutputCloses()
    private let channel: EmbeddedChannel

    init() throws {
        channel = EmbeddedChannel(handlers: [closes, ConnectionLimits()])
        try channel.connect(to: SocketAddress(ipAddress: "127.0.0.1", port: 1)).wait()
    }

    private func receive(_ part: HTTPRequestPart) throws { try channel.writeInbound(part) }
    private let head = HTTPRequestPart.head(
        HTTPRequest(method: .post, scheme: "https", authority: "localhost", path: "/"))
    private func body(_ count: Int) -> HTTPRequestPart { .body(ByteBuffer(repeating: 0, count: count)) }

    /// Writes an answer, and returns its head.
    private func answer() throws -> HTTPResponse? {
        for part in [HTTPResponsePart.head(HTTPResponse(status: .contentTooLarge)), .body(ByteBuffer()), .end(nil)] {
            channel.writeAndFlush(part, promise: nil)
        }
        guard case .head(let head) = try channel.readOutbound(as: HTTPResponsePart.self) else { return nil }
        while try channel.readOutbound(as: HTTPResponsePart.self) != nil {}
        return head
    }

    private func isOpen(after seconds: Int64) -> Bool {
        channel.embeddedEventLoop.advanceTime(by: .seconds(seconds))
        return channel.isActive
    }

    @Test("A client that is silent loses the connection after 30 seconds")
    func silent() {
        #expect(isOpen(after: 29))
        #expect(!isOpen(after: 2))
    }

    @Test("So does one that sends a body byte by byte")
    func slow() throws {
        try receive(head)
        for second in 0..<29 {
            #expect(isOpen(after: 1), "\(second)")
            try receive(body(1))
        }
        #expect(!isOpen(after: 2))
    }

    @Test("A body of 16 KiB a second has its time, and an answer too")
    func long() throws {
        #expect(isOpen(after: 20))
        try receive(head)
        for second in 0..<300 {
            #expect(isOpen(after: 1), "\(second)")
            try receive(body(16 * 1024))
        }
        try receive(.end(nil))
        #expect(isOpen(after: 3600))
        #expect(try answer()?.headerFields[.connection] == nil)
        #expect(isOpen(after: 3600))
    }

    @Test("An answer before the end of its request is the last: the rest is passed over for ten seconds")
    func early() throws {
        try receive(head)
        try receive(body(1))
        #expect(try channel.readInbound(as: HTTPRequestPart.self) != nil)
        #expect(try channel.readInbound(as: HTTPRequestPart.self) != nil)
        #expect(try answer()?.headerFields[.connection] == "close")
        #expect(closes.count == 1)
        try receive(body(100_000_000))
        #expect(try channel.readInbound(as: HTTPRequestPart.self) == nil)
        #expect(isOpen(after: 9))
        try receive(body(100_000_000))
        #expect(!isOpen(after: 2))
    }

    @Test("After it no other request is taken, and the client closes: a close here would reset what it has not read")
    func rest() throws {
        try receive(head)
        #expect(try channel.readInbound(as: HTTPRequestPart.self) != nil)
        #expect(try answer()?.headerFields[.connection] == "close")
        for part in [.end(nil), head, .end(nil)] { try receive(part) }
        #expect(closes.count == 1 && channel.isActive)
        #expect(try channel.readInbound(as: HTTPRequestPart.self) == nil)
        #expect(!isOpen(after: 11))
    }

    @Test(
        "Requests that are sent at once are answered by turns; only the one that is not there whole ends the connection"
    )
    func pipelined() throws {
        for part in [head, .end(nil), head, .end(nil), head, body(1)] { try receive(part) }
        for _ in 0..<2 { #expect(try answer()?.headerFields[.connection] == nil) }
        #expect(try answer()?.headerFields[.connection] == "close")
        #expect(!isOpen(after: 11))
    }
}

/// Counts the ends of the output, at which an embedded channel would close whole.
private final class OutputCloses: ChannelOutboundHandler, Sendable {
    typealias OutboundIn = HTTPResponsePart
    private let closes = Mutex(0)
    var count: Int { closes.withLock { $0 } }

    func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard mode == .output else { return context.close(mode: mode, promise: promise) }
        closes.withLock { $0 += 1 }
        promise?.succeed()
    }
}

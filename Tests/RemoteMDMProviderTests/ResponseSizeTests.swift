import CertificateProviding
import CertificateTLS
import NIOCore
import NIOHTTP1
import TestSupport
import Testing

@testable import ProviderTransport

/// The size that a request permits its response.
@Suite struct ResponseSizeTests {
    private static let size = ServerSession.maximumBody + 1

    private func response(_ method: HTTPRequest.Method, maximum: Int? = nil) async throws -> HTTPResponse {
        let network = InMemoryNetwork()
        network.listen(on: "server", port: 80, group: network.eventLoopGroup) { channel in
            channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(LargeAnswers()) }
        }
        let session = ServerSession(
            try #require(ServerURL("http://server/")), ServerSecurity(trust: ServerTrust(trustAnchors: .system)),
            timeBudget: TimeBudget(.seconds(600), TurnedClock().retryPolicy),
            transport: Transport(network: network, retryPolicy: TurnedClock().retryPolicy))
        var request = HTTPRequest(method: method, target: "/")
        if let maximum { request.maximumResponse = maximum }
        return try await session.response(to: request)
    }

    @Test("a response over a megabyte needs a request that permits it")
    func aLargeResponseNeedsPermission() async throws {
        let error = await #expect(throws: ProviderError.self) { try await response(.get) }
        #expect(error?.message.contains("\(ServerSession.maximumBody) bytes") == true)
        await #expect(throws: ProviderError.self) { try await response(.get, maximum: Self.size - 1) }
        #expect(try await response(.get, maximum: Self.size).body.count == Self.size)
    }

    @Test("the response to HEAD has the length of the content, and none of it")
    func headHasNoBody() async throws {
        let response = try await response(.head)
        #expect(response.status == 200 && response.body.isEmpty)
        #expect(response.headers.first(name: "Content-Length") == "\(Self.size)")
    }

    /// Answers each request with as many bytes as ``size`` says; only with the head, if it is HEAD.
    private final class LargeAnswers: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer
        private var request = ""

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            request += String(buffer: unwrapInboundIn(data))
            guard request.hasSuffix("\r\n\r\n") else { return }
            var answer = ByteBuffer(string: "HTTP/1.1 200 OK\r\nContent-Length: \(size)\r\n\r\n")
            if !request.hasPrefix("HEAD ") { answer.writeRepeatingByte(0x61, count: size) }
            context.writeAndFlush(wrapOutboundOut(answer), promise: nil)
            request = ""
        }
    }
}

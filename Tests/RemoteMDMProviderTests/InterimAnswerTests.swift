import CertificateProviding
import CertificateTLS
import Foundation
import NIOCore
import NIOPosix
import Testing

@testable import ProviderTransport

/// Which answers are none yet (RFC 9110, section 15.2).
@Suite(.timeLimit(.minutes(20))) struct InterimAnswerTests {
    private static let last = "HTTP/1.1 204 No Content\r\n\r\n"

    @Test(
        "Interim 1xx responses except 101 are skipped; a final status below 200 is an error",
        arguments: [
            (last, 204), ("HTTP/1.1 100 Continue\r\n\r\n" + last, 204),
            ("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + last, 204),
            ("HTTP/1.1 199 Something\r\n\r\n" + last, 204),
            ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + last, 101),
            ("HTTP/1.1 000 Nothing\r\nContent-Length: 0\r\n\r\n", 0),
            ("HTTP/1.1 099 Less\r\nContent-Length: 0\r\n\r\n", 99),
        ])
    func anInterimAnswerIsNone(text: String, status: Int) async throws {
        let listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Reciter(text)) }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        defer { listener.close(promise: nil) }
        let url = try #require(ServerURL("http://127.0.0.1:\(listener.localAddress?.port ?? 0)"))
        let security = ServerSecurity(
            trust: ServerTrust(trustAnchors: .system), credentials: nil, now: { Date() })
        let deadline = NIODeadline.now() + .seconds(600)
        let connection = try await ServerConnection.open(url, security, deadline: deadline)
        let response = try await connection.response(to: HTTPRequest(target: "/"), limit: 100, deadline: deadline)
        connection.close()
        #expect(response.status == status)
        if status < 200 {
            #expect(response.refusal(of: "the request", by: url, at: Date()).code == .protocolError)
        }
    }
}

/// Says the same to whatever comes.
private final class Reciter: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let text: String

    init(_ text: String) { self.text = text }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(string: text)), promise: nil)
    }
}

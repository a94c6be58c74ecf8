import NIOCore
import NIOHTTP1
import NIOPosix

@testable import RemoteMDMProvider

/// The responder at a port of the loopback interface, for clients that are not ours.
final class SCEPResponderServer: Sendable {
    private let listener: any Channel

    init(_ responder: SCEPResponder) async throws {
        listener = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.configureHTTPServerPipeline(withErrorHandling: true)
                    try channel.pipeline.syncOperations.addHandler(SCEPRequestHandler(responder))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
    }

    deinit { listener.close(promise: nil) }

    var url: String { "http://127.0.0.1:\(listener.localAddress?.port ?? 0)/scep" }
}

/// Collects each request, and has it answered where that may take its time.
private final class SCEPRequestHandler: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let responder: SCEPResponder
    private var request: HTTPRequest?

    init(_ responder: SCEPResponder) { self.responder = responder }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head):
            request = HTTPRequest(method: head.method == .POST ? .post : .get, target: head.uri)
        case .body(let part): request?.body += part.readableBytesView
        case .end:
            guard let request else { return }
            let channel = context.channel
            NIOThreadPool.singleton.runIfActive(eventLoop: context.eventLoop) { [responder] in
                try responder.answer(request)
            }.whenComplete { answer in
                let response = (try? answer.get()) ?? HTTPResponse(status: 500, headers: [:], body: [])
                let headers: HTTPHeaders = ["Content-Length": String(response.body.count)]
                let head = HTTPResponseHead(
                    version: .http1_1, status: .init(statusCode: response.status), headers: headers)
                channel.write(HTTPServerResponsePart.head(head), promise: nil)
                channel.write(HTTPServerResponsePart.body(.byteBuffer(ByteBuffer(bytes: response.body))), promise: nil)
                channel.writeAndFlush(HTTPServerResponsePart.end(nil), promise: nil)
            }
        }
    }
}

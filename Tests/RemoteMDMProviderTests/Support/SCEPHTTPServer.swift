import NIOCore
import NIOHTTP1
import NIOPosix
import ServerTransport
import Synchronization

@testable import RemoteMDMProvider

/// A ``SCEPResponder`` behind HTTP on the loopback interface, for as long as this object lives.
final class SCEPHTTPServer: Sendable {
    /// What the connections know of.
    private final class Desk: Sendable {
        struct State {
            var responder: SCEPResponder
            var requests: [HTTPRequest] = []
        }
        let state: Mutex<State>

        init(_ responder: SCEPResponder) { state = Mutex(State(responder: responder)) }

        func answer(_ request: HTTPRequest) throws -> HTTPResponse {
            let responder = state.withLock { state in
                state.requests.append(request)
                return state.responder
            }
            return try responder.answer(request)
        }
    }
    private let desk: Desk
    private let channel: any Channel

    /// Responders take their time, and nobody else is to wait for that.
    private static let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    init(_ responder: SCEPResponder) async throws {
        let desk = Desk(responder)
        self.desk = desk
        channel = try await ServerBootstrap(group: Self.group)
            .childChannelInitializer { channel in
                channel.pipeline.configureHTTPServerPipeline().flatMapThrowing {
                    try channel.pipeline.syncOperations.addHandler(Conversation(desk.answer))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
    }

    deinit { channel.close(promise: nil) }

    var port: Int { channel.localAddress?.port ?? 0 }
    var url: String { "http://127.0.0.1:\(port)/scep" }
    var requests: [HTTPRequest] { desk.state.withLock(\.requests) }
    /// Such as `GetCACert`, in the order in which they came.
    var operations: [String] { requests.map(\.operation) }

    func replaceResponder(by responder: SCEPResponder) { desk.state.withLock { $0.responder = responder } }
}

extension HTTPRequest {
    var operation: String {
        let query = target.split(separator: "operation=").last ?? ""
        return String(query.prefix { $0 != "&" })
    }
}

private final class Conversation: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let answer: (HTTPRequest) throws -> HTTPResponse
    private var request = HTTPRequest(target: "")

    init(_ answer: @escaping (HTTPRequest) throws -> HTTPResponse) { self.answer = answer }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head):
            request = HTTPRequest(method: head.method == .POST ? .post : .get, target: head.uri, headers: head.headers)
        case .body(let part): request.body += part.readableBytesView
        case .end:
            guard let response = try? answer(request) else { return context.close(promise: nil) }
            var headers = response.headers
            headers.replaceOrAdd(name: "Content-Length", value: String(response.body.count))
            let status = HTTPResponseStatus(statusCode: response.status)
            context.write(
                wrapOutboundOut(.head(.init(version: .http1_1, status: status, headers: headers))), promise: nil)
            context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(bytes: response.body)))), promise: nil)
            context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
        }
    }
}

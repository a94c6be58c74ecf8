import CertificateProviding
import Enrolment
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import ProviderTransport
import Synchronization

@testable import RemoteMDMProvider

/// A ``SCEPResponder``, or what else answers, behind HTTP on the loopback interface, for as long as this object lives.
final class SCEPHTTPServer: Sendable {
    /// The shared state of the connections.
    private final class Desk: Sendable {
        struct State {
            var answer: Answer
            var requests: [HTTPRequest] = []
        }
        let state: Mutex<State>

        init(_ answer: @escaping Answer) { state = Mutex(State(answer: answer)) }

        func answer(_ request: HTTPRequest) throws -> HTTPResponse {
            let answer = state.withLock { state in
                state.requests.append(request)
                return state.answer
            }
            return try answer(request)
        }
    }
    typealias Answer = @Sendable (HTTPRequest) throws -> HTTPResponse
    private let desk: Desk
    private let channel: any Channel
    private let isSecure: Bool

    /// Responders take their time, and no other test is to wait for that.
    private static let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)

    convenience init(
        _ responder: SCEPResponder, showing identity: Identity? = nil, accepting clients: X509Certificate? = nil
    ) async throws {
        try await self.init(showing: identity, accepting: clients) { try responder.answer($0) }
    }

    /// - Parameters:
    ///   - identity: What it shows over TLS; without one it speaks plain HTTP.
    ///   - clients: The only authority of certificates that clients may show. None is asked for without.
    ///   - answer: One of status 0 is never sent.
    init(
        showing identity: Identity?, accepting clients: X509Certificate? = nil, _ answer: @escaping Answer
    ) async throws {
        isSecure = identity != nil
        let tls = try identity.map { try NIOSSLContext(configuration: .testServer(showing: $0, accepting: clients)) }
        let desk = Desk(answer)
        self.desk = desk
        channel = try await ServerBootstrap(group: Self.group)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    if let tls { try pipeline.addHandler(NIOSSLServerHandler(context: tls)) }
                    try pipeline.configureHTTPServerPipeline()
                    try pipeline.addHandler(Conversation(desk.answer))
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
    }

    deinit { channel.close(promise: nil) }

    var port: Int { channel.localAddress?.port ?? 0 }
    var url: String { "\(isSecure ? "https://localhost" : "http://127.0.0.1"):\(port)/scep" }
    var requests: [HTTPRequest] { desk.state.withLock(\.requests) }
    /// Such as `GetCACert`, in the order in which they came.
    var operations: [String] { requests.map(\.operation) }

    func replaceResponder(by responder: SCEPResponder) {
        desk.state.withLock { $0.answer = { try responder.answer($0) } }
    }
}

extension TLSConfiguration {
    fileprivate static func testServer(
        showing identity: Identity, accepting clients: X509Certificate?
    ) throws -> TLSConfiguration {
        guard let key = identity.key.exporter else { throw EnrolmentAnswer.NotIssued() }
        let der = try key.pkcs8Representation().withUnsafeBytes { Array($0) }
        var configuration = TLSConfiguration.makeServerConfiguration(
            certificateChain: try identity.certificateChain.map {
                .certificate(try NIOSSLCertificate(bytes: $0.derRepresentation, format: .der))
            }, privateKey: .privateKey(try NIOSSLPrivateKey(bytes: der, format: .der)))
        if let clients {
            configuration.certificateVerification = .optionalVerification
            configuration.trustRoots = .certificates([
                try NIOSSLCertificate(bytes: clients.derRepresentation, format: .der)
            ])
        }
        return configuration
    }
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
            guard response.status != 0 else { return }
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

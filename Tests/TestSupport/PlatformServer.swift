public import CertificateProviding
import CertificateTLS
import FoundationEssentials
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
public import Synchronization

/// A platform server as far as a registration sees one: it keeps its connections in memory, records each request, and fails as
/// a test says. A client has a certificate, or a user and a password.
public final class PlatformServer: Sendable {
    public enum Fault: Sendable, Equatable {
        case status(Int)
        /// Does the requested work, and closes the connection without an answer.
        case noAnswer
        /// Closes the connection before it does anything.
        case ignored
        /// A page, as of a proxy that misses the certificate.
        case page(Int, String)
        /// Sends the client to another place.
        case redirection(String)
    }

    public struct State {
        /// Method, principal, and the connection's id if the request has one.
        public var log: [String] = []
        /// By id: whose it is.
        public var connections: [String: String] = [:]
        /// The security configuration and the domain of each request, with or without credentials.
        public var securityFields: [String] = []
        /// For the next requests with a method, as `refused` for those with a wrong password, and as `challenge` for those without
        /// credentials.
        public var faults: [String: [Fault]] = [:]
        /// How many TCP connections were made.
        public var accepted = 0
        /// Gives connections ids of its own, and where it tells them.
        public var renames = false
        public var tells: Set<String> = ["cookie", "body", "location"]
        public var activationCodes: [String] = []
        /// The user's password.
        public var password = PlatformServer.user.1
        /// Further properties in the answer to a creation.
        public var properties: [(String, String)] = []
        /// Refuses each client certificate in the handshake.
        public var refusesCertificates = false
        /// Gets each line of the log when it comes. It must not use the server.
        public var whenAsked: @Sendable (String) -> Void = { _ in }

        fileprivate mutating func note(_ request: String) {
            log.append(request)
            whenAsked(request)
        }
    }
    public let state = Mutex(State())
    public let port: Int
    public let authority: TestAuthority
    private let channel: any Channel

    /// The body of an error.
    public static let error = """
        <error xmlns="http://schemas.microsoft.com/ado/2007/08/dataservices/metadata"><code/><message>No.</message></error>
        """
    public static let client = "CN=client,O=certprov tests"
    public static let user = ("alice", "correct horse")
    public static let path = "/odata/applications/latest/com.example.app/Connections"

    public init(
        _ authority: TestAuthority, isSecure: Bool = true, server: Identity? = nil
    ) async throws {
        self.authority = authority
        let identity = try server ?? authority.issue("server", addresses: [[127, 0, 0, 1]])
        var configuration = try TLSConfiguration.makeServerConfiguration(
            presenting: TLSCredentials(identity),
            demandingClientCertificatesFrom: .certificates([authority.root]))
        configuration.certificateVerification = .optionalVerification
        let context = try NIOSSLContext(configuration: configuration)
        let box = Box()
        channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .serverChannelOption(.backlog, value: 1024)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let sync = channel.pipeline.syncOperations
                    let isRefusing = box.server.withLock { $0 }?.state.withLock(\.refusesCertificates) == true
                    if isSecure {
                        try sync.addHandler(
                            isRefusing
                                ? NIOSSLServerHandler(
                                    context: context,
                                    customVerificationCallback: { _, promise in promise.succeed(.failed) })
                                : NIOSSLServerHandler(context: context))
                    }
                    try sync.configureHTTPServerPipeline()
                    try sync.addHandler(Handler(box))
                    box.server.withLock { $0 }?.state.withLock { $0.accepted += 1 }
                }
            }
            .bind(host: "127.0.0.1", port: 0).get()
        port = channel.localAddress?.port ?? 0
        box.server.withLock { $0 = self }
    }

    private final class Box: Sendable { let server = Mutex<PlatformServer?>(nil) }

    public func close() async { try? await channel.close() }

    public var log: [String] { state.withLock(\.log) }
    public var connections: [String: String] { state.withLock(\.connections) }
    public func fail(_ method: String, _ faults: Fault...) {
        state.withLock { $0.faults[method, default: []] += faults }
    }

    private struct Answer {
        var status: Int
        var headers: [(String, String)] = []
        var body = ""
    }

    /// Returns nil for no answer.
    private func answer(_ head: HTTPRequestHead, certificate: String?) -> Answer? {
        let id = head.headers.first(name: "X-SMP-APPCID")
        let basic = head.headers.first(name: "Authorization").flatMap { $0.hasPrefix("Basic ") ? $0.dropFirst(6) : nil }
            .flatMap { Data(base64Encoded: String($0)) }.map { String(decoding: $0, as: UTF8.self) }
        let user = state.withLock { basic == "\(Self.user.0):\($0.password)" } ? Self.user.0 : nil
        return state.withLock { state -> Answer? in
            state.securityFields.append(
                ["X-SUP-SC", "X-SUP-DOMAIN"].map { head.headers[$0].joined(separator: ",") }.joined(separator: "|"))
            guard let principal = certificate ?? user else {
                if basic != nil {
                    state.note("\(head.method) refused")
                    switch state.faults["refused"]?.first {
                    case .status(let status)?: return Answer(status: status)
                    case .page(let status, let page)?: return Answer(status: status, body: page)
                    case .some: return nil
                    case nil: break
                    }
                }
                if basic == nil, case .status(let status)? = state.faults["challenge"]?.first {
                    return Answer(status: status)
                }
                return Answer(status: 401, headers: [("WWW-Authenticate", "Basic realm=\"test\"")])
            }
            state.note([head.method.rawValue, principal, id].compactMap(\.self).joined(separator: " "))
            if let code = head.headers.first(name: "X-Activation-Code") { state.activationCodes.append(code) }
            var fault = state.faults[head.method.rawValue]?.first
            if fault != nil { state.faults[head.method.rawValue]?.removeFirst() }
            switch fault {
            case .status(let status)?: return Answer(status: status)
            case .page(let status, let page)?: return Answer(status: status, body: page)
            case .redirection(let place)?: return Answer(status: 307, headers: [("Location", place)])
            case .ignored?: return nil
            case .noAnswer?, nil: break
            }
            let answer = Self.act(head, id, principal, &state)
            defer { fault = nil }
            return fault == .noAnswer ? nil : answer
        }
    }

    private static func act(
        _ head: HTTPRequestHead, _ id: String?, _ principal: String, _ state: inout State
    ) -> Answer {
        switch head.method {
        case .POST where head.uri.hasSuffix("/Connections"):
            let proposed = id ?? UUID().uuidString
            if let owner = state.connections[proposed], owner != principal { return Answer(status: 403) }
            let isNew = state.connections[proposed] == nil && !state.renames
            let id = state.renames ? "server-\(proposed)" : proposed
            state.connections[id] = principal
            var answer = Answer(status: isNew ? 201 : 200)
            if state.tells.contains("cookie") {
                answer.headers.append(("Set-Cookie", "X-SMP-APPCID=\(id); Path=/; HttpOnly"))
            }
            if state.tells.contains("location") {
                answer.headers.append(("Location", "https://other.example\(path)('\(id)')"))
            }
            if state.tells.contains("body") {
                answer.body =
                    "<entry><content><m:properties><d:ApplicationConnectionId m:type=\"Edm.String\">\(id)"
                    + "</d:ApplicationConnectionId>"
                    + state.properties.map { "<d:\($0) m:type=\"Edm.String\">\($1)</d:\($0)>" }.joined()
                    + "</m:properties></content></entry>"
            }
            return answer
        case .DELETE:
            guard let id, state.connections[id] == principal else { return Answer(status: 404) }
            state.connections[id] = nil
            return Answer(status: 200)
        default:
            guard let id, state.connections[id] == principal else { return Answer(status: 403) }
            return Answer(status: 200, body: "\(principal) \(id)")
        }
    }

    private final class Handler: ChannelInboundHandler {
        typealias InboundIn = HTTPServerRequestPart
        typealias OutboundOut = HTTPServerResponsePart
        private let box: Box
        private var head: HTTPRequestHead?
        private var size = 0

        init(_ box: Box) { self.box = box }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            switch unwrapInboundIn(data) {
            case .head(let head): (self.head, size) = (head, 0)
            case .body(let part): size += part.readableBytes
            case .end:
                guard let head, let server = box.server.withLock({ $0 }) else { return context.close(promise: nil) }
                let leaf = try? context.pipeline.syncOperations.tlsPeer()?.certificate
                guard let answer = server.answer(head, certificate: leaf?.subject) else {
                    return context.close(promise: nil)
                }
                var headers = HTTPHeaders(answer.headers)
                headers.add(name: "X-Body", value: "\(size) \(head.headers.first(name: "Content-Type") ?? "-")")
                headers.add(name: "Content-Length", value: "\(answer.body.utf8.count)")
                let status = HTTPResponseStatus(statusCode: answer.status)
                context.write(
                    wrapOutboundOut(.head(HTTPResponseHead(version: .http1_1, status: status, headers: headers))),
                    promise: nil)
                context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(string: answer.body)))), promise: nil)
                context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
            }
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }
}

import CertificateProviding
import CertificateTLS
import Logging
import NIOCore
import NIOHTTP1
import NIOSSL
import ServiceIdentity
import ServiceLifecycle

/// One client's connection.
struct ClientConnection {
    private let connection: HTTPSServer.Connection
    private let identity: ServiceIdentity
    /// What the client was shown.
    private let presented: X509Certificate
    private var logger: Logger

    init(_ accepted: HTTPSServer.Accepted, of identity: ServiceIdentity, logger: Logger) {
        self.connection = accepted.connection
        self.identity = identity
        self.presented = accepted.presented
        self.logger = logger
        self.logger[metadataKey: "peer"] = "\(connection.channel.remoteAddress?.ipAddress ?? "unknown")"
    }

    /// Answers requests until the client or the server has had enough.
    func serve() async {
        do {
            try await connection.executeThenClose { try await answer($0.cancelOnGracefulShutdown(), through: $1) }
        } catch {
            // A client without a certificate, or with one from elsewhere, ends here before it could ask for anything.
            logger.info("connection failed", metadata: ["reason": "\(error)"])
        }
    }

    private func answer(
        _ requests: some AsyncSequence<HTTPServerRequestPart, any Error>,
        through outbound: NIOAsyncChannelOutboundWriter<HTTPServerResponsePart>
    ) async throws {
        var client: X509Certificate?
        var head: HTTPRequestHead?
        do {
            for try await part in requests {
                switch part {
                case .head(let received): head = received
                case .body: break
                case .end:
                    guard let request = head else { return }
                    head = nil
                    let known = if let client { client } else { try await verifiedClient() }
                    client = known
                    let isLast = !request.isKeepAlive || mustEnd
                    try await outbound.write(contentsOf: Self.response(to: request, from: known, isLast: isLast))
                    if isLast { return }
                }
            }
        } catch NIOSSLError.uncleanShutdown where client != nil && head == nil {
            // A client that ends need not say so: between two requests nothing is cut off (RFC 9112, section 9.8).
        }
    }

    /// Whether the client should come back with a new handshake. It is told so in an answer, and so loses no request.
    private var mustEnd: Bool { Task.isShuttingDownGracefully || identity.certificate != presented }

    /// Returns the leaf that the client has shown. By the time of a request it is verified: the configuration lets no
    /// handshake succeed without.
    private func verifiedClient() async throws -> X509Certificate {
        guard let client = try await connection.channel.tlsPeer().get()?.certificate else {
            throw NIOSSLError.noCertificateToValidate
        }
        logger.info("client connected", metadata: client.logMetadata)
        return client
    }

    private static func response(
        to request: HTTPRequestHead, from client: X509Certificate, isLast: Bool
    ) -> [HTTPServerResponsePart] {
        let isGet = request.method == .GET
        let body = ByteBuffer(string: isGet ? "\(client.subject), serial \(client.serial)\n" : "Only GET is allowed.\n")
        var head = HTTPResponseHead(version: .http1_1, status: isGet ? .ok : .methodNotAllowed)
        head.headers.add(name: "Content-Type", value: "text/plain; charset=utf-8")
        head.headers.add(name: "Content-Length", value: "\(body.readableBytes)")
        if !isGet { head.headers.add(name: "Allow", value: "GET") }
        if isLast { head.headers.add(name: "Connection", value: "close") }
        // An answer to HEAD has no body (RFC 9110, section 9.3.2).
        return request.method == .HEAD ? [.head(head), .end(nil)] : [.head(head), .body(.byteBuffer(body)), .end(nil)]
    }
}

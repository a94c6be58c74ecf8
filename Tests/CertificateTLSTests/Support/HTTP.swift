import AsyncHTTPClient
import CertificateProviding
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import TestSupport

@testable import CertificateTLS

/// Runs `body` with an HTTPS server that demands a client certificate and answers with its fingerprint.
func withHTTPServer<T>(
    _ body: (MultiThreadedEventLoopGroup, Int) async throws -> T
) async throws -> T {
    let authority = try authority.get()
    let configuration = try TLSConfiguration.makeServerConfiguration(
        presenting: TLSCredentials(authority.issue("server")), demandingClientCertificatesFrom: authority.anchors)
    let context = try NIOSSLContext(configuration: configuration)
    return try await withEventLoops { group in
        try await withServer(on: group) { channel in
            let sync = channel.pipeline.syncOperations
            try sync.addHandler(NIOSSLServerHandler(context: context))
            try sync.configureHTTPServerPipeline()
            try sync.addHandler(WhoAmI())
        } body: {
            try await body(group, $0)
        }
    }
}

extension HTTPClient.Configuration {
    static func mutualTLS(
        presenting credentials: some TLSCredentialSource, trusting anchors: TrustAnchors
    ) throws -> Self {
        Self(tlsConfiguration: try .makeClientConfiguration(presenting: credentials, trusting: anchors))
    }
}

func withHTTPClient<T>(
    _ configuration: HTTPClient.Configuration, on group: MultiThreadedEventLoopGroup,
    _ body: (HTTPClient) async throws -> T
) async throws -> T {
    var configuration = configuration
    configuration.dnsOverride = ["localhost": "127.0.0.1"]
    let client = HTTPClient(eventLoopGroupProvider: .shared(group), configuration: configuration)
    do {
        let value = try await body(client)
        try await client.shutdown()
        return value
    } catch {
        try await client.shutdown()
        throw error
    }
}

/// Returns the fingerprint of the certificate that the server has seen.
func whoami(_ client: HTTPClient, port: Int, closing: Bool = false) async throws -> String {
    var request = HTTPClientRequest(url: "https://localhost:\(port)/")
    if closing { request.headers.add(name: "Connection", value: "close") }
    let response = try await client.execute(request, timeout: .seconds(600))
    return String(buffer: try await response.body.collect(upTo: 1024))
}

final class WhoAmI: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart
    private var isLast = false

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        switch unwrapInboundIn(data) {
        case .head(let head): isLast = !head.isKeepAlive
        case .body: break
        case .end:
            let leaf = try? context.pipeline.syncOperations.tlsPeer()?.certificate
            let name = leaf?.sha256Fingerprint.hexEncoded ?? ""
            let headers = ["Content-Length": "\(name.utf8.count)", "Connection": isLast ? "close" : "keep-alive"]
            let head = HTTPResponseHead(version: .http1_1, status: .ok, headers: HTTPHeaders(headers.map { ($0, $1) }))
            context.write(wrapOutboundOut(.head(head)), promise: nil)
            context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(string: name)))), promise: nil)
            let (channel, isLast) = (context.channel, isLast)
            context.writeAndFlush(wrapOutboundOut(.end(nil))).whenComplete { _ in
                if isLast { channel.close(promise: nil) }
            }
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

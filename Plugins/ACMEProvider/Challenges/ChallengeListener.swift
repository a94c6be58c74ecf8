import CertificateProviding
import Crypto
import FoundationEssentials
import Glibc
import NIOCore
import NIOHTTP1
import NIOPosix
import NIOSSL
import NIOTLS
import SwiftASN1
import Synchronization
import X509

/// Listens for the server's look at challenges: http-01 (RFC 8555, section 8.3) or tls-alpn-01 (RFC 8737).
///
/// It answers the paths of the tokens, or the protocol `acme-tls/1` for the names, and nothing else.
final class ChallengeListener: Sendable {
    enum Kind: Sendable { case http, tls }

    private struct Answers {
        /// By path.
        var texts: [String: String] = [:]
        /// By server name, in lower case.
        var contexts: [String: NIOSSLContext] = [:]
    }
    private let answers: Shared
    private let channel: any Channel

    private final class Shared: Sendable {
        let all = Mutex(Answers())
        /// The oldest first.
        private let connections = Mutex<[any Channel]>([])

        func admit(_ channel: any Channel) {
            let oldest = connections.withLock { connections in
                connections.append(channel)
                return connections.count > ChallengeListener.maximumConnections ? connections.removeFirst() : nil
            }
            oldest?.close(promise: nil)
            channel.closeFuture.whenComplete { _ in
                self.connections.withLock { $0.removeAll { $0 === channel } }
            }
        }
    }

    private init(_ channel: any Channel, _ answers: Shared) { (self.channel, self.answers) = (channel, answers) }

    /// A connection gets so long in all.
    private static let timeout = TimeAmount.seconds(10)
    /// Any host can connect. The server's look takes little time: the oldest connection makes room for a new one.
    private static let maximumConnections = 64

    /// Opens the port.
    ///
    /// - Throws: `operationNotAllowed`, with the process that has the port; `configurationInvalid` for one that this process may not open.
    static func open(
        _ kind: Kind, _ address: ListenAddress, _ parameter: String, on loops: any EventLoopGroup
    ) async throws(ProviderError) -> ChallengeListener {
        let shared = Shared()
        let bootstrap = ServerBootstrap(group: loops)
            .serverChannelOption(.backlog, value: 64)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let pipeline = channel.pipeline.syncOperations
                    let timer = channel.eventLoop.scheduleTask(in: timeout) { channel.close(promise: nil) }
                    channel.closeFuture.whenComplete { _ in timer.cancel() }
                    shared.admit(channel)
                    switch kind {
                    case .http:
                        try pipeline.configureHTTPServerPipeline(withErrorHandling: true)
                        try pipeline.addHandler(TokenHandler(shared))
                    case .tls:
                        try pipeline.addHandler(ByteToMessageHandler(serverName(channel, shared)))
                    }
                }
            }
        do {
            let socket: CInt
            if let host = address.host {
                socket = try boundSocket(host, address.port)
            } else {
                do { socket = try boundSocket("::", address.port) } catch let error as IOError
                    where error.errnoCode == EAFNOSUPPORT || error.errnoCode == EADDRNOTAVAIL
                {
                    socket = try boundSocket("0.0.0.0", address.port)
                }
            }
            let channel = try await bootstrap.withBoundSocket(socket).get()
            return ChallengeListener(channel, shared)
        } catch {
            throw failure(error, address, parameter)
        }
    }

    /// Returns a socket that no child of this process gets, as those of SwiftNIO are: one that runs on would keep the port.
    private static func boundSocket(_ host: String, _ port: Int) throws -> CInt {
        let address = try SocketAddress(ipAddress: host, port: port)
        let family: CInt = if case .v6 = address { AF_INET6 } else { AF_INET }
        let kind = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        let descriptor = socket(family, kind, 0)
        guard descriptor >= 0 else { throw IOError(errnoCode: errno, reason: "socket") }
        // A connection of the last run in TIME_WAIT does not matter. Another listener does.
        var (yes, no): (CInt, CInt) = (1, 0)
        let size = socklen_t(MemoryLayout<CInt>.size)
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, size)
        if host == "::" { setsockopt(descriptor, CInt(IPPROTO_IPV6), IPV6_V6ONLY, &no, size) }
        let isBound = address.withSockAddr { bind(descriptor, $0, socklen_t($1)) == 0 && listen(descriptor, 64) == 0 }
        guard isBound else {
            let error = IOError(errnoCode: errno, reason: "bind")
            Glibc.close(descriptor)
            throw error
        }
        return descriptor
    }

    /// The error for a port that cannot be opened. Another process may end; all else takes a change.
    static func failure(_ error: any Error, _ address: ListenAddress, _ parameter: String) -> ProviderError {
        let code = (error as? IOError)?.errnoCode
        let (reason, step): (String, String) =
            switch code {
            case EADDRINUSE:
                inUse(PortHolder.name(ofPort: address.port) ?? "another process", parameter)
            case EACCES, EPERM:
                (
                    "this process has no right to do so (CAP_NET_BIND_SERVICE)",
                    (parameter == "http-listen" ? "set 'http-root' to the document root of the web server, or " : "")
                        + "give its unit the drop-in of the page ACME"
                )
            default: (code.map { String(cString: strerror($0)) } ?? "\(error)", "check '\(parameter)'")
            }
        return ProviderError(
            code == EADDRINUSE ? .operationNotAllowed : .configurationInvalid,
            """
            \(address.host == nil ? "Port " : "")\(address.text) cannot be opened for the challenge: \(reason); \(step). The next attempt \
            goes on with the same order.
            """, nativeCode: code.map(Int.init))
    }

    private static func inUse(_ holder: String, _ parameter: String) -> (reason: String, step: String) {
        let reason = "\(holder) has it"
        if holder.hasPrefix("certprov (") {
            return (reason, "it proves another name; try again when it has finished")
        }
        return (
            reason,
            parameter == "http-listen"
                ? "stop it, set 'http-listen' to another port, or use its document root as 'http-root', or another 'challenge'"
                : "stop it, set '\(parameter)' to another port, or use another 'challenge'"
        )
    }

    /// Answers these challenges from now on.
    func answer(_ new: [ChallengeAnswer], at now: Date) throws(ProviderError) {
        for answer in new {
            switch answer.kind {
            case .tlsALPN:
                let context = try Self.context(for: answer, at: now)
                answers.all.withLock { $0.contexts[Self.serverName(for: answer.identifier)] = context }
            default:
                let path = "/.well-known/acme-challenge/\(answer.token)"
                answers.all.withLock { $0.texts[path] = answer.keyAuthorization }
            }
        }
    }

    /// Closes the port.
    func close() async { try? await channel.close() }

    // MARK: - http-01

    private final class TokenHandler: ChannelInboundHandler {
        typealias InboundIn = HTTPServerRequestPart
        typealias OutboundOut = HTTPServerResponsePart
        private let answers: Shared
        private var text: String?

        init(_ answers: Shared) { self.answers = answers }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            switch unwrapInboundIn(data) {
            case .head(let head):
                let path = String(head.uri.prefix { $0 != "?" })
                text = head.method == .GET ? answers.all.withLock { $0.texts[path] } : nil
            case .body: break
            case .end:
                let body = context.channel.allocator.buffer(string: text ?? "")
                let headers: HTTPHeaders = [
                    "Content-Type": "application/octet-stream", "Content-Length": "\(body.readableBytes)",
                    "Connection": "close",
                ]
                let head = HTTPResponseHead(version: .http1_1, status: text == nil ? .notFound : .ok, headers: headers)
                context.write(wrapOutboundOut(.head(head)), promise: nil)
                context.write(wrapOutboundOut(.body(.byteBuffer(body))), promise: nil)
                let channel = context.channel
                context.writeAndFlush(wrapOutboundOut(.end(nil))).whenComplete { _ in channel.close(promise: nil) }
            }
        }

        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    // MARK: - tls-alpn-01

    /// Chooses the certificate by the server name; a connection for another name is closed.
    private static func serverName(_ channel: any Channel, _ answers: Shared) -> SNIHandler {
        SNIHandler { result in
            channel.eventLoop.makeCompletedFuture {
                guard case .hostname(let name) = result,
                    let context = answers.all.withLock({ $0.contexts[name.lowercased()] })
                else {
                    channel.close(promise: nil)
                    return
                }
                let pipeline = channel.pipeline.syncOperations
                try pipeline.addHandler(NIOSSLServerHandler(context: context))
                try pipeline.addHandler(HandshakeEnd())
            }
        }
    }

    /// The handshake is the answer; nothing follows it.
    private final class HandshakeEnd: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
            // The server closes the connection; one that has not agreed on the protocol is closed here.
            if case .handshakeCompleted(let negotiated)? = event as? TLSUserEvent, negotiated != "acme-tls/1" {
                context.close(promise: nil)
            }
        }
        func channelRead(context: ChannelHandlerContext, data: NIOAny) { context.close(promise: nil) }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    /// The name by which the server asks: for an address that of its reverse DNS record (RFC 8738, section 6).
    static func serverName(for identifier: ACMEOrder.Identifier) -> String {
        guard identifier.type == "ip", let address = try? AlternativeName("ip:\(identifier.value)"),
            case .ip(let octets) = address
        else { return identifier.value.lowercased() }
        if octets.count == 4 { return octets.reversed().map { "\($0)." }.joined() + "in-addr.arpa" }
        let digits = octets.flatMap { [$0 >> 4, $0 & 15] }
        return digits.reversed().map { String($0, radix: 16) + "." }.joined() + "ip6.arpa"
    }

    private static let acmeIdentifier: ASN1ObjectIdentifier = [1, 3, 6, 1, 5, 5, 7, 1, 31]

    /// A self-signed certificate that holds the proof (RFC 8737, section 3).
    private static func context(
        for answer: ChallengeAnswer, at now: Date
    ) throws(ProviderError) -> NIOSSLContext {
        do {
            let key = P256.Signing.PrivateKey()
            let name = try DistinguishedName { CommonName("ACME challenge") }
            let identifier = answer.identifier
            let alternative: GeneralName =
                if identifier.type == "ip", case .ip(let octets) = try AlternativeName("ip:\(identifier.value)") {
                    .ipAddress(ASN1OctetString(contentBytes: octets[...]))
                } else {
                    .dnsName(identifier.value)
                }
            var proof = DER.Serializer()
            try proof.serialize(ASN1OctetString(contentBytes: answer.digest[...]))
            let extensions = try Certificate.Extensions {
                SubjectAlternativeNames([alternative])
                Certificate.Extension(oid: acmeIdentifier, critical: true, value: proof.serializedBytes[...])
            }
            let certificate = try Certificate(
                version: .v3, serialNumber: .init(), publicKey: .init(key.publicKey),
                notValidBefore: now - 3600, notValidAfter: now + 86_400, issuer: name, subject: name,
                signatureAlgorithm: .ecdsaWithSHA256, extensions: extensions, issuerPrivateKey: .init(key))
            var encoded = DER.Serializer()
            try encoded.serialize(certificate)
            var configuration = TLSConfiguration.makeServerConfiguration(
                certificateChain: [
                    .certificate(try NIOSSLCertificate(bytes: encoded.serializedBytes, format: .der))
                ],
                privateKey: .privateKey(try NIOSSLPrivateKey(bytes: Array(key.derRepresentation), format: .der)))
            configuration.applicationProtocols = ["acme-tls/1"]
            return try NIOSSLContext(configuration: configuration)
        } catch {
            throw ProviderError(
                .internal, "The certificate for the challenge cannot be made.", underlying: error)
        }
    }
}

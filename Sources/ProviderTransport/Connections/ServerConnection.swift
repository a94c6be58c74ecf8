package import CertificateProviding
import CertificateTLS
import FoundationEssentials
package import NIOCore
import NIOHTTP1
import NIOSSL
import Synchronization

/// A connection of a ``ServerSession``. It takes one request at a time. After a failure it is closed.
///
/// AsyncHTTPClient is not used: EST binds a request to its connection (RFC 7030, section 3.5), so the connection must
/// exist before the request is made, and the request must be sent over it.
public final class ServerConnection: Sendable {
    /// The server at the other end, also if a proxy is in between.
    public let server: ServerURL
    private let binding: ChannelBinding?
    /// The proxy that forwards plain HTTP requests; `nil` for a direct connection or a tunnel.
    private let gateway: HTTPProxy?
    private let channel: any Channel
    private let presentation: CertificatePresentation?
    private let names: ServerSettingNames
    private struct State {
        var hasAnswered = false
        /// Whether the server has announced that it closes the connection.
        var hasEnded = false
    }
    private let state = Mutex(State())

    private init(
        server: ServerURL, tls: TLSHandshake?, gateway: HTTPProxy?, channel: any Channel, names: ServerSettingNames,
        hasCertificate: Bool
    ) {
        mayAskLater = hasCertificate && tls?.binding.isOfTLS13 == true && tls?.presentation.isSent == false
        self.server = server
        self.names = names
        self.binding = tls?.binding
        self.presentation = tls?.presentation
        self.gateway = gateway
        self.channel = channel
    }

    deinit { channel.close(promise: nil) }

    /// Connects, and verifies the server before any HTTP is sent to it.
    ///
    /// - Parameters:
    ///   - security: How to authenticate the server, and the certificate to present to it.
    ///   - proxy: The proxy to connect through; `nil` for a direct connection.
    ///   - network: The network that the connection is made in.
    ///   - deadline: When to give up.
    /// - Throws: `unavailable` if the server cannot be reached, `timedOut`, `serverNotTrusted`, `protocolError` if it
    ///   does not speak TLS, `rejected` if it refuses the client certificate, `userCancelled`. If a proxy refuses:
    ///   `rejected`, `unavailable` or `configurationInvalid`.
    package static func open(
        _ server: ServerURL, _ security: ServerSecurity, through proxy: HTTPProxy? = nil,
        over network: any Network = TCPNetwork(), deadline: NIODeadline
    ) async throws(ProviderError) -> ServerConnection {
        let eventLoop = network.eventLoopGroup.any()
        var tls: TLSHandshake?
        if server.isSecure {
            // Reads the system trust store, if that is trusted.
            tls = try await security.executor.run { () throws(ProviderError) in
                try TLSHandshake(server, security, on: eventLoop)
            }
        }
        let attempt = Attempt(on: eventLoop)
        do {
            let channel = try await withTaskCancellationHandler {
                try await connect(
                    server, tls, proxy, security.settingNames, attempt, network, deadline: deadline)
            } onCancel: {
                attempt.cancel()
            }
            return ServerConnection(
                server: server, tls: tls, gateway: tls == nil ? proxy : nil, channel: channel,
                names: security.settingNames, hasCertificate: security.credentials != nil)
        } catch {
            tls?.abandon()
            if Task.isCancelled {
                throw ProviderError(.userCancelled, "Connecting to \(server.authority) was cancelled.")
            }
            if var verdict = tls?.verdict {
                // A run may have several servers.
                if verdict.code == .serverNotTrusted { verdict.message = "\(server.authority): \(verdict.message)" }
                throw verdict
            }
            if security.credentials == nil, tls?.binding.hasCertificateRequest == true,
                let alert = TLSAlert(receivedIn: error), alert.refusesCertificate
            {
                throw ProviderError(demandedCertificate: alert, by: server.authority, underlying: error)
            }
            let key = security.credentials?.identity.certificate.publicKey
            throw Self.failure(error, server, security.settingNames, isConnecting: true, key: key)
                .marked(asEndBy: error, after: tls?.presentation)
        }
    }

    /// A connection attempt to any address of the server, which can be cancelled.
    private final class Attempt: Sendable {
        let connected: EventLoopPromise<any Channel>
        private let state = Mutex<(channels: [any Channel], isCancelled: Bool)>(([], false))

        init(on eventLoop: any EventLoop) { connected = eventLoop.makePromise() }

        func begin(_ channel: any Channel) throws {
            let isCancelled = state.withLock { state in
                state.channels.append(channel)
                return state.isCancelled
            }
            if isCancelled { throw CancellationError() }
        }

        func cancel() {
            let channels = state.withLock { state in
                state.isCancelled = true
                return state.channels
            }
            for channel in channels { channel.close(promise: nil) }
            // The name is perhaps still being resolved.
            connected.fail(CancellationError())
        }
    }

    private static func connect(
        _ server: ServerURL, _ tls: TLSHandshake?, _ proxy: HTTPProxy?, _ names: ServerSettingNames,
        _ attempt: Attempt, _ network: any Network, deadline: NIODeadline
    ) async throws -> any Channel {
        let next = proxy?.server ?? server
        let tunnelled = tls == nil ? nil : proxy
        network.connect(
            to: next.host, port: next.port, on: attempt.connected.futureResult.eventLoop, timeout: deadline - .now()
        ) { channel in
            channel.eventLoop.makeCompletedFuture {
                try attempt.begin(channel)
                if tunnelled == nil { try prepare(channel, tls) }
            }
        }.cascade(to: attempt.connected)
        let channel: any Channel
        do { channel = try await attempt.connected.futureResult.get() } catch {
            throw failure(error, next, names, isConnecting: true, proxy: proxy)
        }
        do {
            if let tunnelled {
                try await channel.eventLoop.flatSubmit {
                    ProxyTunnel(proxy: tunnelled, server: server, names: names).open(on: channel, before: deadline) {
                        channel in
                        try prepare(channel, tls)
                    }
                }.get()
            }
            try await tls?.completion(before: deadline)
        } catch {
            channel.close(promise: nil)
            throw error
        }
        return channel
    }

    private static func prepare(_ channel: any Channel, _ tls: TLSHandshake?) throws {
        try tls?.prepare(channel)
        let pipeline = channel.pipeline.syncOperations
        try pipeline.addHandler(HTTPRequestEncoder())
        try pipeline.addHandler(ByteToMessageHandler(HTTPResponseDecoder(leftOverBytesStrategy: .dropBytes)))
        try pipeline.addHandler(ExchangeHandler())
    }

    /// The channel binding of the connection: `tls-unique` (RFC 5929, section 3.1) with TLS 1.2, `tls-exporter` (RFC
    /// 9266) with TLS 1.3; `nil` without TLS. EST binds a request to it (RFC 7030, section 3.5).
    public var channelBinding: [UInt8]? { binding?.value }

    /// Whether the server has seen our certificate.
    var hasShownCertificate: Bool { presentation?.isSent ?? false }

    /// Whether there is a certificate that the server has not asked for, in TLS 1.3, where it cannot ask later.
    let mayAskLater: Bool

    /// Whether another request may be sent.
    package var isOpen: Bool { channel.isActive && !state.withLock(\.hasEnded) }

    /// Closes the connection. Returns at once.
    package func close() { channel.close(promise: nil) }

    /// Sends a request and returns the response. It is complete, or one of 401 or 407 whose body is cut off. Call it for
    /// one request at a time.
    ///
    /// - Parameter limit: The maximum size of the body, in bytes.
    /// - Throws: `timedOut`, `protocolError` for a response that is truncated or too large, `unavailable` if the
    ///   connection breaks, `userCancelled`.
    package func response(
        to request: HTTPRequest, limit: Int, deadline: NIODeadline
    ) async throws(ProviderError) -> HTTPResponse {
        let response = try await answer(to: gateway?.passingOn(request, to: server) ?? request, limit, deadline)
        if let gateway, response.status == 407 {
            close()
            throw gateway.refusal(response.status, of: server)
        }
        return response
    }

    private func answer(
        to request: HTTPRequest, _ limit: Int, _ deadline: NIODeadline
    ) async throws(ProviderError) -> HTTPResponse {
        let exchange = Exchange(
            request: request, authority: server.authority, limit: limit, deadline: deadline,
            answer: channel.eventLoop.makePromise())
        do {
            return try await withTaskCancellationHandler {
                channel.writeAndFlush(exchange).cascadeFailure(to: exchange.answer)
                let answer = try await exchange.answer.futureResult.get()
                state.withLock { $0 = State(hasAnswered: true, hasEnded: answer.isLast) }
                return answer.response
            } onCancel: {
                channel.close(promise: nil)
            }
        } catch {
            channel.close(promise: nil)
            if Task.isCancelled {
                throw ProviderError(.userCancelled, "The request to \(server.authority) was cancelled.")
            }
            let (alert, hasAnswered) = (presentation?.alert, state.withLock(\.hasAnswered))
            let failure = Self.failure(alert ?? error, server, names, isConnecting: false)
            // The answer may be lost after the server has acted. Then only an alert refuses the certificate, as that of a
            // renegotiation does.
            guard
                request.isRepeatable && !hasAnswered
                    || alert.flatMap(TLSAlert.init(receivedIn:))?.refusesCertificate == true
            else { throw failure }
            throw failure.marked(asEndBy: alert ?? error, after: presentation)
        }
    }
}

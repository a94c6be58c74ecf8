public import CertificateProviding
public import NIOCore
public import NIOPosix
import NIOSSL
import Synchronization

/// Makes one TLS handshake with a server, and listens for a moment whether it is content.
///
/// In TLS 1.3 a client's handshake is complete before the server has seen the client's certificate (RFC 8446, section
/// 2), so a refusal comes afterwards, as an alert.
public struct ConnectionProbe: Sendable {
    /// A DNS name or an IP address.
    public var host: String
    public var port: Int
    /// The DNS name that is asked for (SNI) and that the server's certificate must be valid for; nil is ``host``.
    public var serverName: String?
    /// What to present when the server asks; nil is nothing.
    public var credentials: TLSCredentials?
    public var trustAnchors: TrustAnchors
    /// Offered through ALPN, most preferred first.
    public var applicationProtocols: [String] = []
    /// How long all of it may take.
    public var deadline: Duration = .seconds(10)
    /// How long to listen after a TLS 1.3 handshake for an alert, data or the connection's end.
    public var settlingTime: Duration = .milliseconds(300)

    public init(host: String, port: Int, presenting credentials: TLSCredentials?, trusting trustAnchors: TrustAnchors) {
        self.host = host
        self.port = port
        self.credentials = credentials
        self.trustAnchors = trustAnchors
    }

    /// Connects, reports and closes the connection. Suspends, for at most ``deadline``; nothing blocks `group`.
    ///
    /// - Throws: `unavailable` when the host has no address or nobody listens there; `timedOut`; `protocolError` for a
    ///   peer that does not speak TLS or fails in it, and for a server whose certificate is not trusted or is for
    ///   another name; `rejected` for a refused client certificate, with the alert's number as `nativeCode`;
    ///   `configurationInvalid` for a bad port, name or protocol; what the trust anchors or the key report.
    public func run(
        on group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) async throws(CertificateProviderError) -> ConnectionReport {
        let limit = NIODeadline.now() + TimeAmount(deadline)
        let request = CertificateRequest()
        do {
            let sni = try validatedServerName()
            let configuration = try configuration(noting: request)
            // Reads the system's trust anchors, so not here.
            let context = try await NIOThreadPool.singleton.runIfActive {
                try NIOSSLContext(configuration: configuration)
            }

            let eventLoop = group.any()
            let observed = eventLoop.makePromise(of: ConnectionReport.self)
            let timer = eventLoop.scheduleTask(deadline: limit) { observed.fail(ChannelError.connectTimeout(.zero)) }
            let connected = ClientBootstrap(group: eventLoop)
                .connectTimeout(limit - .now())
                .channelInitializer { [settlingTime] channel in
                    channel.eventLoop.makeCompletedFuture {
                        let sync = channel.pipeline.syncOperations
                        try sync.addHandler(NIOSSLClientHandler(context: context, serverHostname: sni))
                        try sync.addHandler(
                            HandshakeObserver(observed, request: request, settlingTime: TimeAmount(settlingTime)))
                    }
                }
                .connect(host: host, port: port)
            connected.whenFailure { observed.fail(NotConnected(reason: $0)) }
            observed.futureResult.whenComplete { _ in
                timer.cancel()
                connected.whenSuccess { $0.close(promise: nil) }
            }
            return try await observed.futureResult.get()
        } catch {
            throw failure(error, certificateRequested: request.wasMade)
        }
    }

    private func configuration(
        noting request: CertificateRequest
    ) throws(CertificateProviderError) -> TLSConfiguration {
        let nothing = NIOSSLContextConfigurationOverride.noChanges
        let override = credentials?.override ?? nothing
        var configuration = try TLSConfiguration.makeClientConfiguration(
            presenting: NoCredentials(), trusting: trustAnchors)
        configuration.signingSignatureAlgorithms = credentials?.signatureAlgorithms
        // BoringSSL calls back when, and only when, the server asks for a certificate.
        configuration.sslContextCallback = { _, promise in
            request.note()
            promise.succeed(override)
        }
        configuration.applicationProtocols = applicationProtocols
        configuration.shutdownTimeout = .milliseconds(500)
        return configuration
    }

    /// Returns the name for SNI: nil for an IP address, which NIOSSL then verifies as such.
    private func validatedServerName() throws(CertificateProviderError) -> String? {
        func invalid(_ reason: String) -> CertificateProviderError {
            CertificateProviderError(.configurationInvalid, reason)
        }
        guard (1...65535).contains(port) else { throw invalid("\(port) is not a TCP port; use 1 to 65535.") }
        guard applicationProtocols.allSatisfy({ $0.utf8.allSatisfy { $0 < 0x80 } && (1...255).contains($0.utf8.count) })
        else { throw invalid("An application protocol must have 1 to 255 ASCII characters (RFC 7301).") }
        let name = serverName ?? host
        if (try? SocketAddress(ipAddress: name, port: 0)) != nil {
            guard name == host else {
                throw invalid("The server name '\(name)' is an IP address; leave it out or use a DNS name.")
            }
            return nil
        }
        guard (1...255).contains(name.utf8.count), !name.utf8.contains(0) else {
            throw invalid("The server name must have 1 to 255 characters.")
        }
        return name
    }
}

/// The TCP connection did not come about. NIO gives a bare `IOError` where it had nothing to resolve.
struct NotConnected: Error {
    var reason: any Error
}

/// Whether the server has asked for a certificate. Written on the event loop, read from anywhere.
final class CertificateRequest: Sendable {
    private let made = Atomic(false)
    func note() { made.store(true, ordering: .releasing) }
    var wasMade: Bool { made.load(ordering: .acquiring) }
}

private struct NoCredentials: TLSCredentialSource {
    func present(in configuration: inout TLSConfiguration) {}
}

public import CertificateProviding
public import NIOCore
public import NIOPosix
import NIOSSL

/// Makes one TLS handshake with a server, and listens for a moment whether it is content.
///
/// In TLS 1.3 a client's handshake is complete before the server has seen the client's certificate (RFC 8446, section
/// 2), so a refusal comes afterwards, as an alert.
public struct ConnectionProbe: Sendable {
    /// A DNS name or an IP address.
    public var host: String
    /// The TCP port, from 1 to 65535.
    public var port: Int
    /// The DNS name that is asked for (SNI) and that the server's certificate must be valid for; nil is ``host``. A
    /// certificate that names the server's address instead is not enough, nor is a common name.
    public var serverName: String?
    /// What to present when the server asks; nil is nothing.
    public var credentials: TLSCredentials?
    /// Who may have certified the server.
    public var trustAnchors: TrustAnchors
    /// Offered through ALPN, most preferred first.
    public var applicationProtocols: [String] = []
    /// How long all of it may take, from the name's resolution to the end of listening. The time in which the client's key
    /// signs does not count, where the key has a limit of its own
    /// (``CertificateProviding/IdentityKey/signatureTimeout``).
    public var deadline: Duration = .seconds(10)
    /// How long to listen, at least, after a TLS 1.3 handshake for an alert, data or the connection's end. On a slow
    /// network, three times as long as the server took to answer.
    public var settlingTime: Duration = .milliseconds(300)

    /// Makes a probe. Does nothing yet, and checks nothing: ``run(on:)`` does.
    ///
    /// - Parameters:
    ///   - host: A DNS name or an IP address, without brackets.
    ///   - port: The TCP port.
    ///   - credentials: What to present when the server asks; nil is nothing.
    ///   - trustAnchors: Who may have certified the server.
    public init(host: String, port: Int, presenting credentials: TLSCredentials?, trusting trustAnchors: TrustAnchors) {
        self.host = host
        self.port = port
        self.credentials = credentials
        self.trustAnchors = trustAnchors
    }

    /// Connects, reports and closes the connection. Nothing blocks `group` or the caller's executor; the trust anchors
    /// are read on a thread of NIO's pool.
    ///
    /// Suspends until there is an outcome, for at most ``deadline`` after the trust anchors were read, and as long as the key
    /// may take to sign. Cancelling the
    /// task does not end it sooner. The connection is closed, but not awaited, when it returns.
    ///
    /// - Throws: `unavailable` when the host has no address or nobody listens there; `timedOut`; `protocolError` for a
    ///   peer that does not speak TLS or fails in it, and for a server whose certificate is not trusted or is for
    ///   another name; `rejected` for a refused client certificate, with the alert's number as `nativeCode`, and
    ///   without one when the server asked for a certificate and then closed the connection without close_notify;
    ///   `configurationInvalid` for a bad port, name or protocol; what the trust anchors or the key report.
    public func run(
        on group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) async throws(CertificateProviderError) -> ConnectionReport {
        let request = RequestTime()
        do {
            let sni = try validatedServerName()
            let context = try await NIOThreadPool.singleton.runIfActive {
                try NIOSSLContext(configuration: configuration(noting: request))
            }
            return try await outcome(context: context, sni: sni, request: request, on: group.any()).get()
        } catch {
            throw failure(error, certificateRequested: request.time != nil)
        }
    }

    private func outcome(
        context: NIOSSLContext, sni: String?, request: RequestTime, on eventLoop: any EventLoop
    ) -> EventLoopFuture<ConnectionReport> {
        let limit = NIODeadline.now() + TimeAmount(deadline)
        let observed = eventLoop.makePromise(of: ConnectionReport.self)
        let deadline = HandshakeDeadline(
            limit, signatureTimeout: credentials?.identity.key.signatureTimeout.map { TimeAmount($0) }, on: eventLoop
        ) { observed.fail($0) }
        let connected = ClientBootstrap(group: eventLoop)
            .connectTimeout(limit - .now())
            .channelInitializer { [settlingTime] channel in
                channel.eventLoop.makeCompletedFuture {
                    let sync = channel.pipeline.syncOperations
                    try sync.addHandler(NIOSSLClientHandler(context: context, serverHostname: sni))
                    try sync.addHandler(
                        HandshakeObserver(
                            observed, request: request,
                            expecting: .init(
                                serverName: sni, settlingTime: TimeAmount(settlingTime), deadline: deadline)))
                }
            }
            .connect(host: host, port: port)
        connected.whenFailure { observed.fail(NotConnected(reason: $0)) }
        observed.futureResult.whenComplete { _ in
            deadline.cancel()
            connected.whenSuccess { $0.close(promise: nil) }
        }
        return observed.futureResult
    }

    private func configuration(
        noting request: RequestTime
    ) throws(CertificateProviderError) -> TLSConfiguration {
        let nothing = NIOSSLContextConfigurationOverride.noChanges
        let override = credentials?.override ?? nothing
        var configuration = try TLSConfiguration.makeClientConfiguration(trusting: trustAnchors)
        configuration.signingSignatureAlgorithms = credentials?.signatureAlgorithms
        if credentials?.signsInTLS13 == false { configuration.excludeTLS13() }
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
        if Self.isAddress(name) {
            guard name == host else {
                throw invalid("The server name '\(name)' is an IP address; leave it out or use a DNS name.")
            }
            return nil
        }
        guard (1...255).contains(name.utf8.count) else {
            throw invalid("The server name must have 1 to 255 characters.")
        }
        // No certificate could be for such a name.
        guard name.utf8.allSatisfy(Self.isPermittedInNames) else {
            throw invalid(
                """
                The server name '\(name.withVisibleControls)' may only have letters, digits, hyphens and periods; write \
                international names in their ASCII form (xn--…).
                """)
        }
        return name
    }

    private static func isPermittedInNames(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."): true
        default: false
        }
    }

    static func isAddress(_ name: String) -> Bool { (try? SocketAddress(ipAddress: name, port: 0)) != nil }
}

/// The TCP connection did not come about. NIO gives a bare `IOError` where it had nothing to resolve.
struct NotConnected: Error {
    var reason: any Error
}

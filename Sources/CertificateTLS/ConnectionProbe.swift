public import CertificateProviding
public import NIOCore
public import NIOPosix
import NIOSSL

/// Makes one TLS handshake with a server and reports the result.
///
/// In TLS 1.3 a client's handshake is complete before the server has received the client's certificate (RFC 8446,
/// section 2). A refusal comes afterwards, as an alert, so the probe listens for some time.
public struct ConnectionProbe: Sendable {
    /// A DNS name or an IP address.
    public var host: String
    /// The TCP port, from 1 to 65535.
    public var port: Int
    /// The DNS name that is requested (SNI) and that the server's certificate must be valid for; `nil` for ``host``. An
    /// IP address in the certificate, or its common name, is not sufficient.
    public var serverName: String?
    /// The client certificate to present when the server asks; `nil` for none.
    public var credentials: TLSCredentials?
    /// The trust anchors for the server.
    public var trustAnchors: TrustAnchors
    /// The protocols offered through ALPN, most preferred first.
    public var applicationProtocols: [String] = []
    /// The timeout of the whole probe, from name resolution to the end of listening. The time in which the client's key
    /// signs is not counted, if the key has a limit of its own (``/CertificateProviding/IdentityKey/signatureTimeout``).
    public var deadline: Duration = .seconds(10)
    /// The minimum time to listen after a TLS 1.3 handshake for an alert, data or the end of the connection. On a slow
    /// network, three times the server's response time.
    package var settlingTime: Duration = .milliseconds(300)
    /// Runs the reading of the trust anchors' files; by default a thread of its own, while there is work.
    public var executor = BlockingExecutor.threads(maximum: 1)

    /// Creates a probe. Arguments are checked by ``run(on:)``.
    ///
    /// - Parameters:
    ///   - host: A DNS name or an IP address, without brackets.
    ///   - port: The TCP port.
    ///   - credentials: The client certificate to present when the server asks; `nil` for none.
    ///   - trustAnchors: The trust anchors for the server.
    public init(host: String, port: Int, presenting credentials: TLSCredentials?, trusting trustAnchors: TrustAnchors) {
        self.host = host
        self.port = port
        self.credentials = credentials
        self.trustAnchors = trustAnchors
    }

    /// Connects, makes the handshake, and closes the connection. Does not block `group` or the caller's executor; the
    /// trust anchors are read on ``executor``.
    ///
    /// Suspends until there is a result, for at most ``deadline`` after the trust anchors were read, plus the time that
    /// the key takes to sign. Cancelling the task does not end it sooner. When it returns, the connection is being
    /// closed.
    ///
    /// - Throws: `unavailable` if the host has no address or refuses the connection; `timedOut`; `protocolError` for a
    ///   peer that does not speak TLS or violates it; `serverNotTrusted` for a server certificate that is not trusted or
    ///   is for another name; `rejected` for a refused client certificate, with the alert's number as `nativeCode`, and
    ///   without one if the server asked for a certificate and then closed the connection without close_notify;
    ///   `configurationInvalid` for an invalid port, name or protocol; errors of the trust anchors or the key.
    public func run(
        on group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) async throws(CertificateProviderError) -> ConnectionReport {
        let request = RequestTime()
        do {
            let sni = try validatedServerName()
            let context = try await executor.run {
                Result { try NIOSSLContext(configuration: configuration(noting: request)) }
            }.get()
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

    /// Returns the name for SNI; `nil` for an IP address, which NIOSSL verifies as such.
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
                throw invalid("The server name '\(name)' is an IP address; omit it, or use a DNS name.")
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
                The server name '\(name.withVisibleControls)' may contain letters, digits, hyphens and periods only; \
                write international names in their ASCII form (xn--…).
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

/// The TCP connection failed. NIO throws a bare `IOError` if there was no name to resolve.
struct NotConnected: Error {
    var reason: any Error
}

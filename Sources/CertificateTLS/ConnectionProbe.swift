package import CertificateProviding
package import FoundationEssentials
package import NIOCore
import NIOPosix
import NIOSSL
import Synchronization

/// Makes one TLS handshake with a server, sends one HTTP request if wanted, and reports the result.
///
/// In TLS 1.3 a client's handshake is complete before the server has received the client's certificate (RFC 8446,
/// section 2). A refusal comes afterwards, as an alert, so the probe listens for some time.
package struct ConnectionProbe: Sendable {
    /// A DNS name or an IP address.
    package var host: String
    /// The TCP port, from 1 to 65535.
    package var port: Int
    /// The DNS name that is requested (SNI) and that the server's certificate must be valid for; `nil` for ``host``. An
    /// IP address in the certificate, or its common name, is not sufficient.
    package var serverName: String?
    /// The client certificate to present when the server asks; `nil` for none.
    package var credentials: TLSCredentials?
    /// The trust anchors for the server.
    package var trustAnchors: TrustAnchors
    /// The revocation lists of the server's CAs; `nil` if revocation is not checked.
    package var revocationLists: RevocationLists?
    /// Which servers are admitted, of those that are verified.
    package var peers = PeerPolicy.everyVerifiedPeer
    /// The protocols offered through ALPN, most preferred first.
    package var applicationProtocols: [String] = []
    /// Whether to send `GET /` over HTTP/1.1 after the handshake and to report the status of the answer: many servers refuse
    /// a client certificate only then.
    package var sendsHTTPRequest = false
    /// The setting with the trust anchors, which messages name; `nil` if there is none.
    package var trustSettingName: String?
    /// The wall clock, for the validity of the server's certificate.
    package var now: @Sendable () -> Date = { Date() }
    /// The timeout of the whole probe, from name resolution to the end of listening. The time in which the client's key
    /// signs is not counted, if the key has a limit of its own (``/CertificateProviding/IdentityKey/signatureTimeout``).
    package var deadline: Duration = .seconds(10)
    /// The minimum time to listen after a TLS 1.3 handshake for an alert, data or the end of the connection. On a slow
    /// network, three times the server's response time.
    package var settlingTime: Duration = .milliseconds(300)
    /// Runs the reading of the trust anchors' files; by default a thread of its own, while there is work.
    package var executor = BlockingExecutor.threads(maximum: 1)

    /// Creates a probe. Arguments are checked by ``run(on:)``.
    ///
    /// - Parameters:
    ///   - host: A DNS name or an IP address, without brackets.
    ///   - port: The TCP port.
    ///   - credentials: The client certificate to present when the server asks; `nil` for none.
    ///   - trustAnchors: The trust anchors for the server.
    package init(host: String, port: Int, presenting credentials: TLSCredentials?, trusting trustAnchors: TrustAnchors)
    {
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
    /// closed. The server is verified as ``ServerTrust/verify(_:for:at:)`` does.
    ///
    /// - Throws: `unavailable` if the host has no address, refuses the connection, or closes it without an answer to the
    ///   request; `timedOut`; `protocolError` for a peer that does not speak TLS or violates it, and for an answer that is
    ///   not HTTP; `serverNotTrusted` for a server certificate that is not trusted or is for another name; `rejected` for
    ///   a refused client certificate, with the alert's number as `nativeCode`, and without one if the server asked for a
    ///   certificate and then closed the connection without tickets and without close_notify; `configurationInvalid` for an invalid port, name or protocol; errors of the trust anchors or the key.
    package func run(
        on group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) async throws(ProviderError) -> ConnectionReport {
        let request = RequestTime()
        let verdict = Verdict()
        do {
            let sni = try validatedServerName()
            let (verifier, context) = try await executor.run {
                Result {
                    // Read once, here: the verification must not block.
                    let verifier = PeerVerifier(
                        anchors: try trustAnchors.certificates().map(IssuerIndex.init), anchorsName: trustAnchors.name,
                        settingName: trustSettingName,
                        revocation: try revocationLists.map(RevocationCheck.init(reading:)), peers: peers)
                    return (verifier, try NIOSSLContext(configuration: configuration(noting: request)))
                }
            }.get()
            return try await outcome(
                context: context, sni: sni, request: request, verifier: verifier, verdict: verdict, on: group.any()
            ).get()
        } catch {
            if var refusal = verdict.refusal {
                if refusal.code == .serverNotTrusted {
                    refusal.message = "\(hostAndPort(host, port)): \(refusal.message)"
                }
                throw refusal
            }
            throw failure(error, certificateRequested: request.time != nil)
        }
    }

    private func outcome(
        context: NIOSSLContext, sni: String?, request: RequestTime, verifier: PeerVerifier, verdict: Verdict,
        on eventLoop: any EventLoop
    ) -> EventLoopFuture<ConnectionReport> {
        let limit = NIODeadline.now() + TimeAmount(deadline)
        let observed = eventLoop.makePromise(of: ConnectionReport.self)
        let deadline = HandshakeDeadline(
            limit, signatureTimeout: credentials?.identity.key.signatureTimeout.map { TimeAmount($0) }, on: eventLoop
        ) { observed.fail($0) }
        let connected = ClientBootstrap(group: eventLoop)
            .connectTimeout(limit - .now())
            .channelInitializer { [settlingTime, now, httpRequest, name = serverName ?? host] channel in
                channel.eventLoop.makeCompletedFuture {
                    let sync = channel.pipeline.syncOperations
                    let observer = HandshakeObserver(
                        observed, request: request,
                        expecting: .init(
                            settlingTime: TimeAmount(settlingTime), deadline: deadline, httpRequest: httpRequest))
                    try sync.addHandler(observer.makeRecordObserver())
                    // BoringSSL's verification takes the first issuer with the right name, expired or not, and reads the
                    // whole system trust store first.
                    try sync.addHandler(
                        NIOSSLClientHandler(
                            context: context, serverHostname: sni,
                            customVerificationCallbackWithMetadata: { shown, promise in
                                promise.completeWithTask { await verdict.of(verifier, on: shown, for: name, at: now()) }
                            }))
                    try sync.addHandler(observer)
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

    private func configuration(noting request: RequestTime) -> TLSConfiguration {
        let nothing = NIOSSLContextConfigurationOverride.noChanges
        let override = credentials?.override ?? nothing
        // The chain and the name are verified by the callback of the handler. NIOSSL knows no underscore.
        var configuration = TLSConfiguration.makeConfiguration(forHandlerThatVerifies: [])
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

    private var httpRequest: String? {
        guard sendsHTTPRequest else { return nil }
        let name = serverName ?? host
        let authority = port == 443 ? (name.contains(":") ? "[\(name)]" : name) : hostAndPort(name, port)
        return "GET / HTTP/1.1\r\nHost: \(authority)\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    }

    /// Returns the name for SNI; `nil` for an IP address, which is verified as such.
    private func validatedServerName() throws(ProviderError) -> String? {
        func invalid(_ reason: String) -> ProviderError {
            ProviderError(.configurationInvalid, reason)
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
                The server name '\(name.withVisibleControls)' may contain letters, digits, hyphens, underscores and periods \
                only; write international names in their ASCII form (xn--…).
                """)
        }
        return name
    }

    private static func isPermittedInNames(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."): true
        default: false
        }
    }

    static func isAddress(_ name: String) -> Bool { (try? SocketAddress(ipAddress: name, port: 0)) != nil }
}

/// The verification of the server's certificates.
private final class Verdict: Sendable {
    private let stored = Mutex<ProviderError?>(nil)

    /// Why the server is not trusted; `nil` if it is trusted or not verified yet.
    var refusal: ProviderError? { stored.withLock(\.self) }

    func of(
        _ verifier: PeerVerifier, on shown: [NIOSSLCertificate], for host: String, at date: Date
    ) async -> NIOSSLVerificationResultWithMetadata {
        func refuse(_ error: ProviderError) -> NIOSSLVerificationResultWithMetadata {
            stored.withLock { $0 = error }
            return .failed
        }
        var chain: [X509Certificate] = []
        for certificate in shown {
            guard let bytes = try? certificate.toDERBytes() else { continue }
            do throws(ProviderError) { chain.append(try X509Certificate(derRepresentation: bytes)) } catch {
                return refuse(error)
            }
        }
        do throws(PeerRefusal) {
            _ = try await verifier.verify(chain, as: .server(host), at: date)
            return .certificateVerified(VerificationMetadata(nil))
        } catch { return refuse(error.error) }
    }
}

/// The TCP connection failed. NIO throws a bare `IOError` if there was no name to resolve.
struct NotConnected: Error {
    var reason: any Error
}

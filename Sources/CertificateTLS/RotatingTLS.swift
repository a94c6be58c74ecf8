public import CertificateProviding
public import CoreMetrics
public import FoundationEssentials
public import Logging
public import NIOCertificateReloading
public import NIOCore
public import NIOSSL
import Synchronization

/// The peers to trust in TLS: by which trust anchors, under which revocation lists, and with which names.
public struct PeerTrust: Sendable {
    /// The trust anchors of the peers, roots or not.
    public var anchors: TrustAnchors
    /// The revocation lists of the peers' CAs; `nil` if revocation is not checked.
    public var revocationLists: RevocationLists?
    /// Which of the verified peers are admitted.
    public var peers: PeerPolicy

    /// Creates the value. Reads nothing yet.
    public init(
        anchors: TrustAnchors, revocationLists: RevocationLists? = nil, peers: PeerPolicy = .everyVerifiedPeer
    ) {
        (self.anchors, self.revocationLists, self.peers) = (anchors, revocationLists, peers)
    }

    /// Checks that lists of CAs and ``PeerPolicy/isPinOnly`` do not meet: no CA is trusted there that could revoke anything.
    ///
    /// - Throws: `configurationInvalid`.
    package func requireListsThatCount() throws(ProviderError) {
        guard peers.isPinOnly, let revocationLists else { return }
        throw ProviderError(
            .configurationInvalid,
            "The revocation lists in \(revocationLists.path.shellQuoted) have no effect where a pin alone authenticates the peers; remove "
                + "TrustAnchors.crl, or set the mode of the pins to pin-and-pki.")
    }

    /// Checks that a server may demand client certificates under this trust.
    ///
    /// - Throws: As ``TrustAnchors/requireForClients()``, unless pins take the place of the anchors.
    fileprivate func requireForClients() throws(ProviderError) {
        if !peers.isPinOnly { try anchors.requireForClients() }
    }

    /// The anchors whose names a server sends. A client would choose its certificate by them.
    fileprivate func named(_ anchors: [X509Certificate]) throws(ProviderError) -> [NIOSSLCertificate] {
        peers.isPinOnly ? [] : try TrustAnchors.named(anchors)
    }
}

/// Identity, trust and admitted peers of servers and clients, which change while these run.
///
/// It is used by one of:
///
/// - ``server(_:)`` and ``client(_:)`` make the TLS handlers. Each connection is made with the identity that is in force when it
///   begins, and its peer is verified by the trust that is in force when the peer presents its certificate. No session is resumed, so
///   that this holds for every connection.
/// - A framework that makes its handlers itself takes this object as its `CertificateReloader`, and
///   ``TLSServer/verificationCallback`` or ``TLSClient/verificationCallback(for:admitting:)``. The same holds for each full handshake.
///   A server of such a framework accepts session tickets, and a client that resumes a session is not verified again.
///
/// Established connections are not affected. Peers are verified by RFC 5280 and RFC 9525, and not as BoringSSL does: an intermediate
/// may be a trust anchor, and revocation lists count.
///
/// ``watch(every:sleep:)`` looks at the files of trust anchors and revocation lists. A file that cannot be read, or has no
/// certificate or list, leaves those that were read before in force.
///
/// Metrics: the counter `certprov_peers_refused_total` (by `peer`: `client`, `server`; and by `reason`), and the gauges
/// `certprov_trust_stale` (1 while a file cannot be used, else 0), `certprov_trust_anchors_expiration_timestamp_seconds` and
/// `certprov_revocation_lists_expiration_timestamp_seconds`, both of the first that ends.
public final class RotatingTLS: Sendable {
    package let credentials: RotatingCredentials

    /// The content that was read of a ``PeerTrust``.
    package struct Content: Sendable {
        fileprivate var trust: PeerTrust
        fileprivate var verifier: PeerVerifier
        /// The certificates of the anchors in their order, for their names in the server's question; empty for too many.
        fileprivate var authorities: [NIOSSLCertificate]
        fileprivate var bundle: TrustBundle?
        fileprivate var stamp: Stamp

        /// A certificate of a verified path for SwiftNIO SSL, which has those that were shown already.
        fileprivate func native(
            _ certificate: X509Certificate, among shown: [NIOSSLCertificate], _ chain: [X509Certificate]
        ) throws -> NIOSSLCertificate {
            if let index = chain.firstIndex(of: certificate) { return shown[index] }
            if let index = verifier.anchors?.certificates.firstIndex(of: certificate), index < authorities.count {
                return authorities[index]
            }
            return try NIOSSLCertificate(bytes: certificate.derRepresentation, format: .der)
        }
    }
    fileprivate struct Stamp: Sendable, Equatable {
        var anchors: FileGroup.Stamp?
        var lists: FileGroup.Stamp?

        init(of trust: PeerTrust) {
            anchors = trust.anchors.files?.stamp()
            lists = trust.revocationLists.map { FileGroup($0.path).stamp() }
        }
    }

    private struct State {
        var content: Content
        /// The number of changes.
        var number: UInt64 = 0
        /// Whether there is a server: then the anchors must be fit for clients.
        var isServer = false
        /// The configuration for other clients, of this number.
        var clientConfiguration: (UInt64, TLSConfiguration)?
        /// When the files are to be read.
        var watch = FileWatch<Stamp>()
        /// The error that was logged last.
        var reported: String?
    }
    private let state: Mutex<State>

    private let refused: RefusedPeers
    private let logger: Logger
    private let metrics: any MetricsFactory
    private let now: @Sendable () -> Date
    private let executor: BlockingExecutor

    /// Reads the trust. The identity's key is not tested; it first signs in a handshake.
    ///
    /// - Parameters:
    ///   - identity: The identity to present.
    ///   - trust: The peers to trust.
    ///   - logger: Gets the peers that are refused, and errors of the files.
    ///   - metrics: Makes the counter and the gauges.
    ///   - now: The wall clock.
    ///   - executor: Runs the reading of the files.
    /// - Throws: Errors of ``TLSCredentials/init(_:)``; `fileNotFound`, `configurationInvalid` and `malformedData` for trust anchors
    ///   and revocation lists.
    public convenience init(
        presenting identity: Identity, trusting trust: PeerTrust, logger: Logger = Logger(label: "certprov"),
        metrics: any MetricsFactory = MetricsSystem.factory, now: @escaping @Sendable () -> Date = { Date() },
        executor: BlockingExecutor = .threads(maximum: 1)
    ) async throws(ProviderError) {
        try await self.init(
            RotatingCredentials(TLSCredentials(identity)), trusting: trust, logger: logger, metrics: metrics, now: now,
            executor: executor)
    }

    package init(
        _ credentials: RotatingCredentials, trusting trust: PeerTrust, logger: Logger = Logger(label: "certprov"),
        metrics: any MetricsFactory = MetricsSystem.factory, now: @escaping @Sendable () -> Date = { Date() },
        executor: BlockingExecutor = .threads(maximum: 1)
    ) async throws(ProviderError) {
        let identity = credentials.current.identity
        let content = try await executor.run { () throws(ProviderError) in
            try Self.read(trust, for: identity)
        }
        (self.credentials, self.logger, self.metrics, self.now, self.executor) =
            (credentials, logger, metrics, now, executor)
        state = Mutex(State(content: content))
        refused = RefusedPeers(logger: logger, metrics: metrics)
        record(content, isStale: false)
    }

    /// The identity of the next handshake. May be read on any thread; does not block.
    public var identity: Identity { credentials.current.identity }

    /// Replaces the identity, after its key has passed a test signature with the scheme that TLS prefers. If it throws, the current
    /// identity stays. Of several concurrent updates, the one that was started last wins.
    ///
    /// Runs on the caller's executor for as long as the key takes to sign. Do not call it on an event loop.
    ///
    /// - Throws: `unsupportedAlgorithm` for an identity that BoringSSL cannot use, and for a key that cannot be exported and supports
    ///   other signature schemes than the first one, such as P-384 after P-256, since configurations that are in use would not offer
    ///   them; `keyMismatch` if the test signature does not verify; errors of the key.
    public func update(to identity: Identity) async throws(ProviderError) { try await credentials.update(to: identity) }

    /// The trust in force, as it was configured.
    public var trust: PeerTrust { state.withLock(\.content.trust) }

    /// Replaces the trust. If it throws, the trust in force stays.
    ///
    /// - Throws: As the initializer; `configurationInvalid` also for ``TrustAnchors/system`` if there is a server.
    public func update(trusting trust: PeerTrust) async throws(ProviderError) {
        install(try await read(trust, for: credentials.current.identity))
    }

    /// Reads another trust, which ``install(_:)`` puts in force.
    ///
    /// - Throws: As ``update(trusting:)``.
    package func read(
        _ trust: PeerTrust, for identity: Identity
    ) async throws(ProviderError) -> Content {
        if state.withLock(\.isServer) { try trust.requireForClients() }
        return try await executor.run { () throws(ProviderError) in try Self.read(trust, for: identity) }
    }

    package func install(_ content: Content) {
        let former = state.withLock { state in
            let former = state.content
            state.content = content
            state.number += 1
            (state.watch, state.reported) = (FileWatch(), nil)
            return former
        }
        warnOfOlderLists(in: content, since: former)
        record(content, isStale: false)
    }

    /// A list that is older than the one before it may no longer have what that had.
    private func warnOfOlderLists(in new: Content, since former: Content) {
        guard let lists = new.verifier.revocation, let formerLists = former.verifier.revocation else { return }
        for reason in lists.regressions(since: formerLists) {
            logger.warning("a revocation list is older than the one before it", metadata: ["reason": "\(reason)"])
        }
    }

    private static func read(
        _ trust: PeerTrust, for identity: Identity
    ) throws(ProviderError) -> Content {
        try trust.requireListsThatCount()
        // Before the files, so that a change while they are read shows at the next look.
        let stamp = Stamp(of: trust)
        let anchors = try trust.anchors.resolved(with: identity)
        let index = try anchors.certificates().map(IssuerIndex.init)
        return Content(
            trust: trust,
            verifier: PeerVerifier(
                anchors: index, anchorsName: anchors.name, settingName: "TrustAnchors",
                revocation: try trust.revocationLists.map(RevocationCheck.init(reading:)), peers: trust.peers),
            authorities: try trust.named(index?.certificates ?? []),
            bundle: trust.anchors.isOfIdentity ? identity.trust : nil, stamp: stamp)
    }

    /// Identity and trust in force, which belong together.
    fileprivate var moment: (credentials: TLSCredentials, content: Content, number: UInt64) {
        let credentials = credentials.current
        return state.withLock { state in
            // An identity that comes without a bundle leaves the last one in force; a look reports it.
            if state.content.trust.anchors.isOfIdentity, let bundle = credentials.identity.trust,
                bundle != state.content.bundle
            {
                let anchors = IssuerIndex(bundle.certificates)
                guard let authorities = try? state.content.trust.named(anchors.certificates) else {
                    return (credentials, state.content, state.number)
                }
                state.content.bundle = bundle
                state.content.authorities = authorities
                state.content.verifier.anchors = anchors
                state.number += 1
            }
            return (credentials, state.content, state.number)
        }
    }

    // MARK: - Verification

    /// The callback of SwiftNIO SSL that verifies a peer.
    ///
    /// - Parameter address: The peer's, for the log; `nil` where it is not known.
    fileprivate func verificationCallback(
        of role: PeerVerifier.Role, admitting peers: PeerPolicy? = nil, from address: SocketAddress? = nil
    ) -> @Sendable ([NIOSSLCertificate], EventLoopPromise<NIOSSLVerificationResultWithMetadata>) -> Void {
        { shown, promise in
            promise.completeWithTask { await self.verify(shown, as: role, admitting: peers, from: address) }
        }
    }

    private func verify(
        _ shown: [NIOSSLCertificate], as role: PeerVerifier.Role, admitting peers: PeerPolicy?,
        from address: SocketAddress?
    ) async -> NIOSSLVerificationResultWithMetadata {
        let chain = shown.compactMap { try? X509Certificate($0) }
        while true {
            let (_, content, number) = moment
            var verifier = content.verifier
            if let peers { verifier.peers = peers }
            do throws(PeerRefusal) {
                guard chain.count == shown.count else { throw Self.unreadable(role) }
                let path = try await verifier.verify(chain, as: role, at: now())
                // The trust that was in force before may admit a peer that is refused now.
                guard moment.number == number else { continue }
                guard let trusted = try? path.map({ try content.native($0, among: shown, chain) }) else {
                    throw Self.unreadable(role)
                }
                return .certificateVerified(VerificationMetadata(ValidatedCertificateChain(trusted)))
            } catch {
                guard moment.number == number else { continue }
                let server: String? = if case .server(let name) = role { name } else { nil }
                refused.note(error, chain.first, server: server, address: address, at: now())
                return .failed
            }
        }
    }

    private static func unreadable(_ role: PeerVerifier.Role) -> PeerRefusal {
        PeerRefusal(.malformed, role, "a certificate of its chain cannot be read")
    }

    // MARK: - Looking at files

    /// Looks at the files until the task is cancelled. A change is in force after two looks: a file is read
    /// when two looks in a row see the same, since a tool may write it in parts. One that is another at each look is read at the third.
    ///
    /// - Parameters:
    ///   - interval: The time between two looks.
    ///   - sleep: Waits for this time, and throws when the task is cancelled.
    public func watch(
        every interval: Duration = .seconds(3),
        sleep: @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) }
    ) async {
        while !Task.isCancelled {
            do { try await sleep(interval) } catch { return }
            await look()
        }
    }

    /// The finding of a look at the files.
    private enum Seen {
        /// The files that were read.
        case inForce
        /// Other files, which are being changed, or could not be used a moment ago.
        case unsettled
        case new(Content)
    }

    /// One look at the files. Those that cannot be used are tried again, at ever longer intervals while they stay the same.
    package func look() async {
        let (credentials, content, number) = moment
        let result = await Result { () async throws(ProviderError) in
            try await executor.run { () throws(ProviderError) -> Seen in
                let seen = Stamp(of: content.trust)
                let (isDue, isRestless) = self.state.withLock {
                    ($0.watch.isDue(seen, inForce: content.stamp), $0.watch.isRestless)
                }
                _ = try content.trust.anchors.resolved(with: credentials.identity)
                guard isDue else { return seen == content.stamp ? .inForce : .unsettled }
                do throws(ProviderError) {
                    let new = try Self.read(content.trust, for: credentials.identity)
                    // It is being changed again: its content counts if it always is.
                    return isRestless || Stamp(of: content.trust) == seen && new.stamp == seen ? .new(new) : .unsettled
                } catch {
                    self.state.withLock { $0.watch.tryLater() }
                    throw error
                }
            }
        }
        switch result {
        case .success(.unsettled): return
        case .success(.inForce):
            // A file that could not be used is as it was.
            guard state.withLock({ $0.reported != nil }) else { return }
            report(nil)
        case .success(.new(let new)):
            let isInstalled = state.withLock { state in
                guard state.number == number else { return false }
                state.content = new
                state.number += 1
                return true
            }
            guard isInstalled else { return }
            logger.notice(
                "trust anchors and revocation lists were read again",
                metadata: ["anchors": "\(new.verifier.anchors?.certificates.count ?? 0)"])
            warnOfOlderLists(in: new, since: content)
            record(new, isStale: false)
            report(nil)
        case .failure(let error): report(error)
        }
    }

    private func report(_ error: ProviderError?) {
        let text = error?.message
        let isNew = state.withLock { state in
            defer { state.reported = text }
            return state.reported != text
        }
        guard isNew else { return }
        record(state.withLock(\.content), isStale: error != nil)
        guard let error else { return }
        logger.error(
            "the trust in force stays, since its files cannot be used",
            metadata: ["code": "\(error.code)", "reason": "\(error)"])
    }

    private func record(_ content: Content, isStale: Bool) {
        Gauge(label: "certprov_trust_stale", factory: metrics).record(isStale ? 1 : 0)
        if let end = content.verifier.anchors?.certificates.map(\.notValidAfter).min() {
            Gauge(label: "certprov_trust_anchors_expiration_timestamp_seconds", factory: metrics)
                .record(end.timeIntervalSince1970)
        }
        if let end = content.verifier.revocation?.firstEnd {
            Gauge(label: "certprov_revocation_lists_expiration_timestamp_seconds", factory: metrics)
                .record(end.timeIntervalSince1970)
        }
    }
}

// MARK: - Servers

/// Makes the TLS handlers of a server.
public struct TLSServer: Sendable {
    private let tls: RotatingTLS
    private let configure: @Sendable (inout TLSConfiguration) -> Void

    fileprivate init(
        _ tls: RotatingTLS, _ configure: @escaping @Sendable (inout TLSConfiguration) -> Void
    ) throws(ProviderError) {
        (self.tls, self.configure) = (tls, configure)
        _ = try context()
    }

    /// Adds the handler of ``makeHandler(for:)`` to a connection that was accepted, and closes the connection if its handshake is not
    /// complete within a time limit: a client that is silent would keep it open for ever.
    ///
    /// Call it on the channel's event loop, before handlers of the program are added.
    ///
    /// - Parameter limit: From now on. The time in which the server's own key signs counts, so that a slow token needs more.
    /// - Throws: As ``makeHandler(for:)``, and SwiftNIO's errors of a channel that is closed.
    public func addHandlers(to channel: any Channel, handshakeWithin limit: TimeAmount = .seconds(10)) throws {
        let pipeline = channel.pipeline.syncOperations
        try pipeline.addHandler(makeHandler(for: channel))
        try pipeline.addHandler(HandshakeLimit(limit))
    }

    /// Returns the handler for a connection that was accepted, with the identity in force. It demands a certificate of the
    /// client, and verifies it. Does not block.
    ///
    /// A handshake has no time limit; ``addHandlers(to:handshakeWithin:)`` has one.
    ///
    /// - Throws: `configurationInvalid` if SwiftNIO SSL refuses the configuration.
    public func makeHandler(for channel: any Channel) throws(ProviderError) -> NIOSSLServerHandler {
        NIOSSLServerHandler(
            context: try context(),
            customVerificationCallbackWithMetadata: tls.verificationCallback(of: .client, from: channel.remoteAddress))
    }

    /// A context for one connection. Its tickets are worth nothing for others: BoringSSL verifies no peer again that resumes
    /// a session.
    private func context() throws(ProviderError) -> NIOSSLContext {
        let (credentials, content, _) = tls.moment
        return try .verifiedByHandler(.forHandlers(presenting: credentials, content.authorities, configure))
    }

    /// Verifies clients for a framework that makes its handlers itself: SwiftNIO SSL's custom verification callback with metadata, which
    /// are the verified chain. A refused client is logged and counted as by the handlers made here, without its address.
    ///
    /// It is called in each full handshake. **BoringSSL does not call it for a client that resumes a session**, for up to seven days after the
    /// client was verified: not when its CA is no longer trusted, nor when its certificate is revoked or expired. Such a connection has
    /// no validated chain (`NIOSSLHandler.peerValidatedCertificateChain` is `nil`): refuse its requests.
    ///
    /// May be called on any thread, and does not block. It never fails the promise.
    public var verificationCallback:
        @Sendable ([NIOSSLCertificate], EventLoopPromise<NIOSSLVerificationResultWithMetadata>) -> Void
    {
        tls.verificationCallback(of: .client)
    }

    /// Returns a configuration for a framework that makes its handlers itself and takes ``verificationCallback`` beside it. The
    /// identity changes in it by itself. The names of the trust anchors that it sends do not change.
    ///
    /// Without the callback, BoringSSL would verify the clients by the trust anchors of this moment, or refuse all.
    public func makeConfiguration() -> TLSConfiguration {
        .forHandlers(presenting: tls.credentials, tls.moment.content.authorities, configure)
    }
}

extension RotatingTLS {
    /// Returns the maker of a server's handlers. From then on, ``TrustAnchors/system`` is refused: it would admit the clients
    /// of every public CA.
    ///
    /// - Parameter configure: Changes other settings of the configuration of each connection, such as
    ///   `applicationProtocols`. Those of the verification and the identity stay as they are.
    /// - Throws: `configurationInvalid` for ``TrustAnchors/system``, and if SwiftNIO SSL refuses the configuration.
    public func server(
        _ configure: @escaping @Sendable (inout TLSConfiguration) -> Void = { _ in }
    ) throws(ProviderError) -> TLSServer {
        try state.withLock { state throws(ProviderError) in
            try state.content.trust.requireForClients()
            state.isServer = true
        }
        return try TLSServer(self, configure)
    }
}

// MARK: - Clients

/// Makes the TLS handlers of a client.
public struct TLSClient: Sendable {
    private let tls: RotatingTLS
    private let configure: @Sendable (inout TLSConfiguration) -> Void

    fileprivate init(
        _ tls: RotatingTLS, _ configure: @escaping @Sendable (inout TLSConfiguration) -> Void
    ) throws(ProviderError) {
        (self.tls, self.configure) = (tls, configure)
        _ = try context()
    }

    /// Returns the handler for a connection to a server, with the identity in force. It verifies the server. Does not block.
    ///
    /// - Parameters:
    ///   - host: The DNS name, or the IP address without brackets, that the server's certificate must be valid for. The common
    ///     name does not count.
    ///   - peers: Which servers are admitted; `nil` for ``PeerTrust/peers``.
    /// - Throws: `configurationInvalid` for a name that cannot be sent, and if SwiftNIO SSL refuses the configuration.
    public func makeHandler(
        for host: String, admitting peers: PeerPolicy? = nil
    ) throws(ProviderError) -> NIOSSLClientHandler {
        let context = try context()
        do {
            return try NIOSSLClientHandler(
                context: context, serverHostname: ConnectionProbe.isAddress(host) ? nil : host,
                customVerificationCallbackWithMetadata: verificationCallback(for: host, admitting: peers))
        } catch {
            throw ProviderError(
                .configurationInvalid,
                "The server name '\(host.withVisibleControls)' cannot be used; it must have 1 to 255 characters.",
                underlying: error)
        }
    }

    /// Verifies servers for a framework that makes its handlers itself: SwiftNIO SSL's custom verification callback with metadata,
    /// which are the verified chain. SwiftNIO SSL's clients resume no session, so that it is called for each connection.
    ///
    /// - Parameters: As for ``makeHandler(for:admitting:)``.
    /// - Returns: A callback that may be called on any thread, does not block, and never fails the promise.
    public func verificationCallback(
        for host: String, admitting peers: PeerPolicy? = nil
    ) -> @Sendable ([NIOSSLCertificate], EventLoopPromise<NIOSSLVerificationResultWithMetadata>) -> Void {
        tls.verificationCallback(of: .server(host), admitting: peers)
    }

    private func context() throws(ProviderError) -> NIOSSLContext {
        try .verifiedByHandler(.forHandlers(presenting: tls.moment.credentials, [], configure))
    }
}

extension RotatingTLS {
    /// Returns the maker of a client's handlers.
    ///
    /// - Parameter configure: As for ``server(_:)``.
    /// - Throws: `configurationInvalid` if SwiftNIO SSL refuses the configuration.
    public func client(
        _ configure: @escaping @Sendable (inout TLSConfiguration) -> Void = { _ in }
    ) throws(ProviderError) -> TLSClient { try TLSClient(self, configure) }

    /// Returns a configuration for a client that makes its handlers itself, such as AsyncHTTPClient: set it in each request.
    /// It is the same one until the trust changes. The identity changes in it by itself.
    ///
    /// SwiftNIO SSL verifies the server: revocation lists and admitted peers do not count, and one of the anchors must be self-signed.
    /// It accepts more names than RFC 9525: a certificate for the IP address of the connection, even if a DNS name was requested,
    /// and the common name if there are no alternative names. If a holder of another certificate under the anchors must not pass as
    /// this server, check the leaf with `X509Certificate.isValid(forServerName:)` after the handshake. It
    /// refuses a server that sends an expired CA certificate before a valid one with the same name and key, which OpenSSL and
    /// ``ServerTrust`` trust: have the server send the valid one only.
    ///
    /// - Throws: `configurationInvalid` for anchors of which none is self-signed, and for ``PeerPolicy/pins``, which would not count.
    public func clientConfiguration() throws(ProviderError) -> TLSConfiguration {
        let (_, content, number) = moment
        guard content.trust.peers.pins.isEmpty, !content.trust.peers.isPinOnly else {
            throw ProviderError(
                .configurationInvalid,
                "Pins of peers have no effect in a TLS configuration that another library verifies servers by; remove Peers.pin, or make the "
                    + "connections with the handlers of certprov.")
        }
        if let (of, configuration) = state.withLock(\.clientConfiguration), of == number { return configuration }
        let anchors: TrustAnchors =
            content.verifier.anchors.map {
                .certificates($0.certificates).named(content.verifier.anchorsName)
            } ?? .system
        let new = try TLSConfiguration.makeClientConfiguration(presenting: credentials, trusting: anchors)
        return state.withLock { state in
            // Another call may have made one: a connection pool compares them.
            if let (of, configuration) = state.clientConfiguration, of == number { return configuration }
            state.clientConfiguration = (number, new)
            return new
        }
    }
}

// MARK: - The identity for frameworks

extension RotatingTLS: CertificateReloader {
    /// The identity of the next handshake, for a framework that takes a `CertificateReloader`.
    ///
    /// Its configuration says which signature schemes the key is asked for: SwiftNIO SSL's, or those of the first key if that cannot
    /// be exported. An RSA key in a token that has no RSASSA-PSS cannot sign in TLS 1.3, which such a framework does not exclude.
    public var sslContextConfigurationOverride: NIOSSLContextConfigurationOverride { credentials.current.override }
}

extension TLSConfiguration {
    /// The configuration of a connection whose handler verifies the peer, with the settings of the program.
    fileprivate static func forHandlers(
        presenting credentials: some TLSCredentialSource, _ authorities: [NIOSSLCertificate],
        _ configure: (inout TLSConfiguration) -> Void
    ) -> TLSConfiguration {
        let own = makeConfiguration(forHandlerThatVerifies: authorities)
        var configuration = own
        configure(&configuration)
        configuration.trustRoots = own.trustRoots
        configuration.additionalTrustRoots = []
        configuration.certificateVerification = own.certificateVerification
        configuration.sendCANameList = own.sendCANameList
        // BoringSSL would not verify the peer again.
        configuration.renegotiationSupport = .none
        credentials.present(in: &configuration)
        return configuration
    }
}

extension NIOSSLContext {
    /// Creates the context of one connection, whose handler verifies the peer.
    fileprivate static func verifiedByHandler(
        _ configuration: TLSConfiguration
    ) throws(ProviderError) -> NIOSSLContext {
        do { return try NIOSSLContext(configuration: configuration) } catch {
            throw ProviderError(
                .configurationInvalid, "SwiftNIO SSL refuses the TLS configuration; correct its settings.",
                underlying: error)
        }
    }
}

extension Result {
    /// The outcome of `body`.
    fileprivate init(_ body: () async throws(Failure) -> Success) async {
        do throws(Failure) { self = .success(try await body()) } catch { self = .failure(error) }
    }
}

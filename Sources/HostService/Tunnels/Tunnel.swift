package import CertificateProviding
package import CertificateTLS
import Glibc
package import HostSockets
package import Logging
package import NIOCore
import NIOPosix
import NIOSSL
import Synchronization

/// A tunnel: mutual TLS for a program that has none. A server tunnel takes TLS and passes the bytes to a local target; a client tunnel
/// takes the bytes of granted local callers and passes them to a server.
///
/// Identity, trust and peers that change count for new connections.
package final class Tunnel: Sendable {
    /// The TLS of the identity. It is asked at connections, until it has answered once; those that it fails for are closed. It must not
    /// try to get an identity each time.
    package typealias TLSSource = @Sendable () async throws(ProviderError) -> RotatingTLS

    private struct State {
        var settings: TunnelSettings
        var grants: Grants
        var server: TLSServer?
        var client: TLSClient?
        /// Ends the listening; `nil` before it begins, and after it has ended.
        var stop: (@Sendable () async -> Void)?
        var address: SocketAddress?
        var open: [ObjectIdentifier: any Channel] = [:]
        /// Those of `open` that max-connections counts.
        var counted: Set<ObjectIdentifier> = []
        /// Those who wait until no connection is open.
        var waiting: [EventLoopPromise<Void>] = []
        var isStopped = false

        mutating func takeWaiting() -> [EventLoopPromise<Void>] {
            defer { waiting = [] }
            return waiting
        }
    }
    private let state: Mutex<State>
    private let tls: TLSSource
    private let group: any EventLoopGroup
    private let logger: Logger
    private let lines = RepeatedLines()
    /// Handshakes in progress, by the peers' addresses.
    private let handshakes: Places<[UInt8]>
    /// Connections of all tunnels, by the descriptors that the process may have.
    private let places: Places<Int>
    /// Looks at callers, which blocks on `/proc`.
    private let looking = BlockingExecutor.threads(maximum: 2)

    /// The bounds of handshakes in progress. One address may be that of many hosts.
    package static let handshakes = (total: 4096, perAddress: 512)

    /// - Parameters:
    ///   - grants: The callers of a client tunnel's Unix socket.
    ///   - group: The event loops of the connections: one for each core.
    package init(
        _ settings: TunnelSettings, grants: Grants, tls: @escaping TLSSource, on group: any EventLoopGroup,
        logger: Logger, handshakes: (total: Int, perAddress: Int) = handshakes,
        places: Places<Int> = .ofProcess
    ) {
        state = Mutex(State(settings: settings, grants: grants))
        var logger = logger
        logger[metadataKey: "tunnel"] = "\(settings.number)"
        (self.tls, self.group, self.logger) = (tls, group, logger)
        self.handshakes = Places(total: handshakes.total, each: handshakes.perAddress)
        self.places = places
    }

    /// The number of connections that are open.
    package var connections: Int { state.withLock(\.open.count) }
    /// The address that it listens at, with the port that the kernel has chosen for port 0; `nil` before ``start()``, and for a Unix socket.
    package var address: SocketAddress? { state.withLock(\.address) }
    package var settings: TunnelSettings { state.withLock(\.settings) }

    /// Takes other settings and grants, for new connections. It listens where it did before: make another tunnel for another address.
    package func update(_ settings: TunnelSettings, grants: Grants) {
        state.withLock { state in
            let listen = state.settings.listen
            (state.settings, state.grants) = (settings, grants)
            state.settings.listen = listen
        }
    }

    /// Starts to listen.
    ///
    /// - Throws: `unavailable` if the address cannot be had, and errors of ``ListeningSocket``, with address and setting.
    package func start() async throws(ProviderError) {
        let settings = settings
        let setting = TunnelSettings.listen.of(settings.number).name
        switch settings.listen {
        case .unix(let path):
            let socket = try ListeningSocket(
                at: path, setting: setting, mode: settings.socketMode, group: settings.socketGroup)
            let limits = HostListener.Limits(
                total: settings.maximumConnections, perUser: max(1, settings.maximumConnections / 2))
            let listener = try await HostListener(socket, limits, on: group, places: places, logger: logger) {
                [weak self] channel, peer in
                self?.take(channel, of: peer) ?? channel.eventLoop.makeFailedFuture(Refused.stopped)
            }
            state.withLock { $0.stop = { await listener.stop() } }
        case .tcp(let host, let port):
            let listener: any Channel
            do {
                listener = try await ServerBootstrap(group: group)
                    .serverChannelOption(.backlog, value: 4096)
                    .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
                    .childChannelOption(.autoRead, value: false)
                    .childChannelOption(.allowRemoteHalfClosure, value: true)
                    .childChannelInitializer { [weak self] channel in
                        self?.take(channel, of: nil) ?? channel.eventLoop.makeFailedFuture(Refused.stopped)
                    }
                    .bind(host: TunnelAddress.address(of: host), port: port).get()
            } catch {
                throw Self.cannotListen(at: settings.listen, setting, error)
            }
            state.withLock { state in
                state.stop = { try? await listener.close() }
                state.address = listener.localAddress
            }
        }
        let listen = address.map { TunnelAddress.tcp(host: $0.ipAddress ?? "", port: $0.port ?? 0) } ?? settings.listen
        logger.notice("the tunnel listens", metadata: ["address": "\(listen)", "target": "\(settings.target)"])
        if settings.mode == .client, !settings.listen.isUnix {
            logger.warning("every user of this host can use the identity at this port, as any-local-user says")
        }
    }

    private static func cannotListen(at address: TunnelAddress, _ setting: String, _ error: any Error) -> ProviderError
    {
        let code = (error as? IOError)?.errnoCode
        let advice =
            switch code {
            case EADDRINUSE: "end the program that listens there, or set \(setting) to another address"
            case EACCES: "ports below 1024 take the capability CAP_NET_BIND_SERVICE"
            default: "set \(setting) to an address of this host"
            }
        return ProviderError(
            .unavailable,
            "The tunnel cannot listen at \(address): \(code.map { errorText($0) } ?? "\(error)"); \(advice).",
            underlying: error)
    }

    /// Takes no more connections. Those that are open go on.
    func stopListening() async {
        let stop = state.withLock { state in
            state.isStopped = true
            defer { state.stop = nil }
            return state.stop
        }
        await stop?()
    }

    /// Takes no more connections, and lets those that are open go on for a while. Then they are closed.
    package func stop(grace: Duration) async {
        await stopListening()
        let loop = group.next()
        let empty = loop.makePromise(of: Void.self)
        let timer = loop.scheduleTask(in: TimeAmount(grace)) {
            for channel in self.state.withLock({ Array($0.open.values) }) { channel.close(promise: nil) }
        }
        let isEmpty = state.withLock { state in
            if !state.open.isEmpty { state.waiting.append(empty) }
            return state.open.isEmpty
        }
        if isEmpty { empty.succeed() }
        try? await empty.futureResult.get()
        timer.cancel()
    }
}

// MARK: - Connections

extension Tunnel {
    private enum Refused: Error { case stopped, tooMany, handshakes, caller, identity }

    /// Logs why connections are closed: the same reason once a minute.
    private func note(_ reason: String) {
        guard let count = lines.note(reason) else { return }
        logger.warning("a connection was closed", metadata: ["reason": "\(reason)", "count": "\(count)"])
    }

    /// Sets up a connection that was taken.
    ///
    /// - Parameter peer: The caller at a Unix socket.
    private func take(_ channel: any Channel, of peer: SocketPeer?) -> EventLoopFuture<Void> {
        // The listener of a Unix socket has taken one.
        let place = peer == nil ? places.take(0) : nil
        guard peer != nil || place != nil else {
            note(Places<Int>.isFull)
            return channel.eventLoop.makeFailedFuture(Refused.tooMany)
        }
        channel.closeFuture.whenComplete { _ in withExtendedLifetime(place) {} }
        let id = ObjectIdentifier(channel)
        let (settings, isStopped) = state.withLock { state in
            if !state.isStopped { state.open[id] = channel }
            return (state.settings, state.isStopped)
        }
        guard !isStopped else { return channel.eventLoop.makeFailedFuture(Refused.stopped) }
        channel.closeFuture.whenComplete { _ in
            let waiting = self.state.withLock { state in
                state.open[id] = nil
                state.counted.remove(id)
                return state.open.isEmpty ? state.takeWaiting() : []
            }
            for promise in waiting { promise.succeed() }
        }
        try? channel.syncOptions?.setOption(.maxMessagesPerRead, value: 1)
        try? channel.syncOptions?.setOption(.recvAllocator, value: Self.allocator)
        if !settings.listen.isUnix { Self.keepAlive(channel) }
        if settings.mode == .server { return serve(channel, settings) }
        return count(channel) ? call(channel, peer, settings) : channel.eventLoop.makeFailedFuture(Refused.tooMany)
    }

    /// Whether one more may be open. Of a server tunnel after the handshake, which has bounds of its own: a peer without a certificate
    /// cannot take the places of those who have one.
    private func count(_ channel: any Channel) -> Bool {
        let (maximum, isCounted) = state.withLock { state in
            let maximum = state.settings.maximumConnections
            let isCounted = state.counted.count < maximum
            if isCounted { state.counted.insert(ObjectIdentifier(channel)) }
            return (maximum, isCounted)
        }
        if !isCounted { note("\(maximum) connections are open, the number of max-connections") }
        return isCounted
    }

    /// A connection keeps the buffers of its largest reading.
    private static let allocator = AdaptiveRecvByteBufferAllocator(minimum: 1024, initial: 2048, maximum: 32_768)

    /// Peers that vanish are noticed within two minutes.
    private static func keepAlive(_ channel: any Channel) {
        guard let options = channel.syncOptions else { return }
        try? options.setOption(.socketOption(.so_keepalive), value: 1)
        for (option, seconds) in [(TCP_KEEPIDLE, 60), (TCP_KEEPINTVL, 15), (TCP_KEEPCNT, 4)] as [(Int32, Int)] {
            try? options.setOption(
                ChannelOptions.Types.SocketOption(level: .tcp, name: .init(rawValue: option)), value: seconds)
        }
    }

    /// Gets the maker of handlers, which is made once.
    private func maker<T: Sendable>(
        _ place: any WritableKeyPath<State, T?> & Sendable, on loop: any EventLoop,
        make: @escaping @Sendable (RotatingTLS) throws(ProviderError) -> T
    ) -> EventLoopFuture<T> {
        if let made = state.withLock({ $0[keyPath: place] }) { return loop.makeSucceededFuture(made) }
        let promise = loop.makePromise(of: T.self)
        promise.completeWithTask { [self] in
            let new = try make(try await tls())
            return state.withLock { state in
                state[keyPath: place] = state[keyPath: place] ?? new
                return state[keyPath: place] ?? new
            }
        }
        return promise.futureResult.flatMapErrorThrowing { error in
            self.note("there is no identity: \(error)")
            throw Refused.identity
        }
    }

    private func bootstrap(on loop: any EventLoop, _ settings: TunnelSettings) -> ClientBootstrap {
        ClientBootstrap(group: loop).connectTimeout(TimeAmount(settings.connectTimeout))
            .channelOption(.autoRead, value: false).channelOption(.allowRemoteHalfClosure, value: true)
            .channelOption(.maxMessagesPerRead, value: 1).channelOption(.recvAllocator, value: Self.allocator)
    }

    /// Closes the connection at its maximum age.
    private func bound(_ end: TunnelEnd, of channel: any Channel, _ settings: TunnelSettings) {
        guard let age = settings.maximumAge else { return }
        let timer = channel.eventLoop.assumeIsolated().scheduleTask(in: TimeAmount(age)) { end.finish() }
        channel.closeFuture.whenComplete { _ in timer.cancel() }
    }

    private static func describe(_ error: any Error) -> String {
        if case .some(.connectTimeout) = error as? ChannelError { return "it does not answer in time" }
        if case .some(.eof) = error as? ChannelError { return "the connection ended during the handshake" }
        let last = (error as? NIOConnectionError)?.connectionErrors.last?.error ?? error
        if let code = (last as? IOError)?.errnoCode { return errorText(code) }
        return error is NIOConnectionError ? "its name has no address" : "\(last)"
    }

    // MARK: - Server tunnels

    private func serve(_ channel: any Channel, _ settings: TunnelSettings) -> EventLoopFuture<Void> {
        // Of IPv6 the network, since a host has one to itself.
        guard let place = handshakes.take(Array((channel.remoteAddress?.octets ?? []).prefix(8))) else {
            note("too many handshakes are in progress, of one address or in total")
            return channel.eventLoop.makeFailedFuture(Refused.handshakes)
        }
        return maker(\.server, on: channel.eventLoop) { tls throws(ProviderError) in try tls.server() }
            .flatMapThrowing { [self] server in
                let pipeline = channel.pipeline.syncOperations
                try pipeline.addHandler(WireEnd())
                try pipeline.addHandler(server.makeHandler(for: channel))
                try pipeline.addHandler(
                    TunnelEnd(
                        .init(limit: TimeAmount(settings.connectTimeout), place: place) { [self] end, context in
                            connect(end, context, settings)
                        } hasFailed: { [logger] error in
                            // RotatingTLS logs the peers that it refuses, and scanners would fill the log.
                            logger.debug("no handshake", metadata: ["reason": "\(Self.describe(error))"])
                        }))
            }
    }

    private func connect(_ end: TunnelEnd, _ context: ChannelHandlerContext, _ settings: TunnelSettings) {
        guard count(context.channel) else { return end.finish() }
        var header: ByteBuffer?
        if settings.hasProxyHeader {
            let channel = context.channel
            guard let peer = try? context.pipeline.syncOperations.tlsPeer() else { return end.finish() }
            header = ProxyHeader.bytes(of: peer, from: channel.remoteAddress, to: channel.localAddress)
        }
        connect(end, of: context.channel, header, settings, until: .now() + TimeAmount(settings.connectTimeout))
    }

    private func connect(
        _ end: TunnelEnd, of channel: any Channel, _ header: ByteBuffer?, _ settings: TunnelSettings,
        until deadline: NIODeadline
    ) {
        let bootstrap = bootstrap(on: channel.eventLoop, settings)
        let connected: EventLoopFuture<any Channel>
        switch settings.target {
        case .tcp(let host, let port): connected = bootstrap.connect(host: TunnelAddress.address(of: host), port: port)
        case .unix(let path):
            if header != nil, let reason = Self.isOpenToOthers(path) {
                note("no header may be written to \(path.withVisibleControls): \(reason)")
                return end.finish()
            }
            connected = bootstrap.connect(unixDomainSocketPath: path)
        }
        connected.assumeIsolated().whenComplete { [self] result in
            do {
                let target = try result.get()
                let other = TunnelEnd()
                try target.pipeline.syncOperations.addHandler(other)
                TunnelEnd.join(end, other, header: header)
                bound(end, of: channel, settings)
            } catch let error as IOError where error.errnoCode == EAGAIN && .now() < deadline {
                // The backlog of a Unix socket is full; TCP would try again by itself.
                channel.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(20)) { [self] in
                    connect(end, of: channel, header, settings, until: deadline)
                }
            } catch {
                note("the target \(settings.target) cannot be reached: \(Self.describe(error))")
                end.finish()
            }
        }
    }

    /// Why others could forge a header at this socket; `nil` if they cannot connect.
    private static func isOpenToOthers(_ path: String) -> String? {
        var status = stat()
        guard stat(path, &status) == 0 else { return nil }
        return status.st_mode & 0o007 == 0
            ? nil
            : "its mode lets every user connect, who could forge one; set it to 0660, 0600, or another without access for others"
    }

    // MARK: - Client tunnels

    private func call(_ channel: any Channel, _ peer: SocketPeer?, _ settings: TunnelSettings) -> EventLoopFuture<Void>
    {
        let permitted = channel.eventLoop.makePromise(of: Void.self)
        if let peer {
            permitted.completeWithTask { [self] in
                let caller = try await looking.run { () throws(ProviderError) in Caller(peer) }
                if state.withLock(\.grants).refusal(of: caller, lines, logger) != nil { throw Refused.caller }
            }
        } else {
            permitted.succeed()
        }
        return permitted.futureResult.flatMap {
            self.maker(\.client, on: channel.eventLoop) { tls throws(ProviderError) in try tls.client() }
        }
        .flatMapThrowing { [self] client in
            let end = TunnelEnd()
            try channel.pipeline.syncOperations.addHandler(end)
            try call(client, for: end, of: channel, settings)
        }
    }

    private func call(
        _ client: TLSClient, for end: TunnelEnd, of channel: any Channel, _ settings: TunnelSettings
    ) throws {
        guard case .tcp(let host, let port) = settings.target else { return }
        let handler = try client.makeHandler(for: settings.serverName ?? host)
        let other = TunnelEnd(
            .init(limit: TimeAmount(settings.connectTimeout)) { [self] other, _ in
                TunnelEnd.join(end, other)
                bound(end, of: channel, settings)
            } hasFailed: { [self] error in
                let tlsError = ProviderError(tlsError: error, from: "\(settings.target)", with: nil)
                note(tlsError?.message ?? "no TLS with \(settings.target): \(Self.describe(error))")
                end.finish()
            })
        bootstrap(on: channel.eventLoop, settings).connect(host: TunnelAddress.address(of: host), port: port)
            .assumeIsolated().whenComplete {
                [self] result in
                do {
                    let target = try result.get()
                    Self.keepAlive(target)
                    try target.pipeline.syncOperations.addHandlers([WireEnd(), handler, other])
                } catch {
                    note("the target \(settings.target) cannot be reached: \(Self.describe(error))")
                    end.finish()
                }
            }
    }
}

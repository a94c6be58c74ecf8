import CertificateProviding
import Glibc
import HostSockets
import IdentityFiles
import Logging
import NIOCore
import Synchronization

/// Gives units of systemd the credentials that they load: LoadCredential=web.pem:SOCKET (systemd.exec(5)).
///
/// A client sends nothing, and takes what it reads for the credential: without data it is an empty one, and the unit starts. A refusal
/// is more than systemd takes, so that the unit fails with 243/CREDENTIALS.
final class CredentialSocket: Sendable {
    /// Returns the identity of a name, or why there is none now. Does not block.
    typealias Source = @Sendable (String) -> Result<ServedIdentity, Grants.Refusal>

    private struct State {
        var listeners: [HostListener] = []
        var open: [ObjectIdentifier: any Channel] = [:]
        var snapshots: [pid_t: Snapshot] = [:]
        var isStopped = false
    }
    private let state = Mutex(State())
    private let sockets: [ListeningSocket]
    private let source: Source
    private let timeout: Duration
    private let logger: Logger
    private let lines = RepeatedLines()
    /// To look at a caller and to export a key may block.
    private let blocking = BlockingExecutor.threads(maximum: 4)

    /// systemd takes 1 MiB, for all credentials of a unit.
    private static let refusal = ByteBuffer(repeating: UInt8(ascii: "\n"), count: 1 << 20 + 1)
    /// A socket's buffer takes as much at once: of a service that is killed, no client has a part.
    private static let largest = 1 << 17
    private static let limits = HostListener.Limits(total: 8192, perUser: 4096)

    /// The name of a socket that the service manager passes.
    static let name = "credentials"

    /// - Parameter timeout: The longest wait for an identity that is not there yet.
    init(
        _ sockets: [ListeningSocket], logger: Logger, timeout: Duration = .seconds(5), source: @escaping Source
    ) {
        (self.sockets, self.logger, self.timeout, self.source) = (sockets, logger, timeout, source)
    }

    /// Begins to take connections.
    ///
    /// - Throws: `unavailable`.
    func start(on group: any EventLoopGroup) async throws(ProviderError) {
        for socket in sockets {
            let listener = try await HostListener(
                socket, Self.limits, on: group, logger: logger, overflow: Self.refuse
            ) { [self] in
                take($0, $1)
            }
            state.withLock { $0.listeners.append(listener) }
        }
    }

    private func take(_ channel: any Channel, _ peer: SocketPeer) -> EventLoopFuture<Void> {
        let name = try? channel.pipeline.syncOperations.withUnsafeTransportIfAvailable(of: CInt.self) {
            SocketPeer.name(of: $0)
        }
        let id = ObjectIdentifier(channel)
        state.withLock { $0.open[id] = channel }
        channel.closeFuture.whenComplete { [self] _ in _ = state.withLock { $0.open.removeValue(forKey: id) } }
        // Root's goes on for as long as it reads: a part of a refusal would be a credential.
        if peer.user != 0 { channel.eventLoop.scheduleTask(in: .seconds(10)) { channel.close(promise: nil) } }
        return channel.eventLoop.makeCompletedFuture {
            try channel.pipeline.syncOperations.addHandler(
                Handler { [self] in await answer(name.flatMap(\.self) ?? [], peer) })
        }
    }

    /// Root's is not closed for want of a place: without data it would be an empty credential.
    @Sendable private static func refuse(_ channel: any Channel, _ peer: SocketPeer) -> EventLoopFuture<Void>? {
        guard peer.user == 0 else { return nil }
        channel.eventLoop.scheduleTask(in: .seconds(10)) { channel.close(promise: nil) }
        return channel.eventLoop.makeCompletedFuture {
            try channel.pipeline.syncOperations.addHandler(Handler { Self.refusal })
        }
    }

    /// Takes no more connections, and waits for the answers to those that are open.
    func stop() async {
        let listeners = state.withLock { state in
            state.isStopped = true
            defer { state.listeners = [] }
            return state.listeners
        }
        for listener in listeners { await listener.stop() }
        // Ten seconds for all: clients that do not read must not keep the service from its end, one after another.
        let open = Array(state.withLock(\.open).values)
        let limits = open.map { channel in
            channel.eventLoop.scheduleTask(in: .seconds(10)) { channel.close(promise: nil) }
        }
        for channel in open { try? await channel.closeFuture.get() }
        for limit in limits { limit.cancel() }
    }

    /// Removes the sockets' files that were made here. For the end of the process.
    func removeFiles() { for socket in sockets { socket.removeFile() } }

    /// Writes the answer, whole, and closes the connection.
    private final class Handler: ChannelInboundHandler, Sendable {
        typealias InboundIn = ByteBuffer
        private let answer: @Sendable () async -> ByteBuffer

        init(_ answer: @escaping @Sendable () async -> ByteBuffer) { self.answer = answer }

        func channelActive(context: ChannelHandlerContext) {
            let (channel, promise) = (context.channel, context.eventLoop.makePromise(of: ByteBuffer.self))
            promise.completeWithTask(answer)
            promise.futureResult.flatMap { channel.writeAndFlush($0) }
                .whenComplete { _ in channel.close(promise: nil) }
        }
    }

    // MARK: - The answer

    private func answer(_ name: [UInt8], _ peer: SocketPeer) async -> ByteBuffer {
        let caller = await run { Caller(peer) }
        do throws(Grants.Refusal) {
            let claim = try CredentialClaim(name)
            let obstacles = caller.mismatches(asManagerOf: claim.unit)
            guard obstacles.isEmpty else { throw Grants.Refusal(obstacles.joined(separator: ", ")) }
            let served = try await identity(claim.identity)
            let answer = await run { [self] in
                Result { () throws(Grants.Refusal) in try credential(claim, of: served, for: peer) }
            }
            let (content, identity, grant) = try answer.get()
            if lines.note("\(claim.unit) \(claim.credential) \(identity.certificate.serialNumberText)") != nil {
                IdentityEvent.served.write(
                    to: logger, identity,
                    [
                        "identity": claim.identity, "credential": claim.credential, "unit": claim.unit, "grant": grant,
                        "caller": "\(caller)",
                    ])
            }
            return ByteBuffer(bytes: content)
        } catch {
            let claim = String(decoding: name.dropFirst(), as: UTF8.self).withVisibleControls
            // Others than root could bind ever new names.
            let line = peer.user == 0 ? "\(claim.drop { $0 != "/" }) \(error.reason)" : "user \(peer.user)"
            if let count = lines.note(line) {
                logger.warning(
                    "credential refused",
                    metadata: [
                        "claim": "\(claim)", "caller": "\(caller)", "reason": "\(error.reason)", "count": "\(count)",
                    ])
            }
            return Self.refusal
        }
    }

    private func run<T: Sendable>(_ body: @escaping @Sendable () -> T) async -> T {
        await withCheckedContinuation { continuation in blocking.submit { continuation.resume(returning: body()) } }
    }

    /// Waits for an identity that is not there yet.
    private func identity(_ name: String) async throws(Grants.Refusal) -> ServedIdentity {
        let end = ContinuousClock.now + timeout
        while true {
            switch source(name) {
            case .success(let identity): return identity
            case .failure(let refusal):
                guard ContinuousClock.now < end, !state.withLock(\.isStopped),
                    (try? await Task.sleep(for: .milliseconds(50))) != nil
                else { throw refusal }
            }
        }
    }

    /// Returns the credential, with its identity and the grant. Blocks.
    private func credential(
        _ claim: CredentialClaim, of served: ServedIdentity, for peer: SocketPeer
    ) throws(Grants.Refusal) -> (content: [UInt8], identity: Identity, grant: String) {
        // Anew: it may have waited.
        let caller = Caller(peer)
        let obstacles = caller.mismatches(asManagerOf: claim.unit)
        guard obstacles.isEmpty else { throw Grants.Refusal(obstacles.joined(separator: ", ")) }
        let grant = try served.grants.forCredentials(caller)
        let hasKey = [.pair, .key].contains(claim.part)
        guard served.handsOutKey || !hasKey else {
            throw Grants.Refusal(
                "the property file has no Serve.hand-out-key = true; set it, or load \(served.name).crt")
        }
        let identity = snapshot(of: served, for: peer)
        guard !hasKey || identity.key.exporter != nil else {
            throw Grants.Refusal(
                "the private key cannot leave its \(identity.key.location.rawValue); load \(served.name).crt, or use the key by PKCS#11"
            )
        }
        let set: FileSet
        do throws(ProviderError) { set = try FileSet(identity, exportingKey: hasKey) } catch {
            throw Grants.Refusal("\(error)")
        }
        guard let content = set.content(of: claim.part.file) else {
            throw Grants.Refusal("the identity comes without CA certificates")
        }
        guard content.count <= Self.largest else {
            throw Grants.Refusal("it has \(content.count) bytes, and a credential \(Self.largest) at most")
        }
        return (content, identity, "\(grant.name) (\(grant.text))")
    }

    /// The identities that a process has begun to fetch: certificate and key of one are of one generation, whatever is renewed in between.
    /// For a minute: a process of root that goes on, and fetches by itself, gets the new one.
    private struct Snapshot {
        /// Has the descriptor of the process: another one with its number gets others.
        let peer: SocketPeer
        let begin = ContinuousClock.now
        var identities: [String: Identity] = [:]
    }

    private func snapshot(of served: ServedIdentity, for peer: SocketPeer) -> Identity {
        state.withLock { state in
            state.snapshots = state.snapshots.filter {
                $0.value.peer.isRunning && ContinuousClock.now - $0.value.begin < .seconds(60)
            }
            let identity = state.snapshots[peer.process]?.identities[served.name] ?? served.current
            state.snapshots[peer.process, default: Snapshot(peer: peer)].identities[served.name] = identity
            return identity
        }
    }
}

extension CredentialClaim.Part {
    /// The file of a ``FileSet``.
    fileprivate var file: String {
        switch self {
        case .pair: "identity.pem"
        case .chain: "chain.pem"
        case .key: "key.pem"
        case .trust: "ca.pem"
        }
    }
}

import CertificateProviding
import Glibc
import HostSockets
import Logging
import NIOCore
import Synchronization

/// The PKCS#11 socket: a token for each caller with the identities that it is granted, by the protocol of p11-kit's remoting.
final class PKCS11Socket: Sendable {
    /// Of `FileDescriptorName=` in a socket unit.
    static let name = "pkcs11"

    private let sockets: [ListeningSocket]
    private let served: @Sendable () -> [ServedIdentity]
    private let logger: Logger
    private let limits: HostListener.Limits
    private let limit: TimeAmount
    private let places: Places<uid_t>
    /// Of callers with a grant, and of all others: these must not keep lines of those out of the log.
    private let lines = RepeatedLines(), refusals = RepeatedLines()
    /// Of signatures: an audit wants each process.
    private let events = RepeatedLines(maximumCount: 1 << 16)
    /// Looks at callers, which blocks on `/proc`.
    private let looking = BlockingExecutor.threads(maximum: 2)
    /// One look at a time for each user.
    private let turns = Turns<uid_t>()
    private let open = Mutex<[ObjectIdentifier: any Channel]>([:])
    private let listeners = Mutex<[HostListener]>([])

    private enum Refused: Error { case tooMany }

    /// - Parameters:
    ///   - served: The identities of the service at this moment.
    ///   - limit: The time for a message, and for the writing of an answer.
    init(
        _ sockets: [ListeningSocket], served: @escaping @Sendable () -> [ServedIdentity], logger: Logger,
        limits: HostListener.Limits = .init(total: 2048, perUser: 512), limit: Duration = .seconds(10)
    ) {
        (self.sockets, self.served, self.limits, self.limit) = (sockets, served, limits, TimeAmount(limit))
        places = Places(total: limits.total, each: limits.perUser)
        var logger = logger
        logger[metadataKey: "socket"] = "\(Self.name)"
        self.logger = logger
    }

    /// The number of connections that are open.
    var connections: Int { open.withLock(\.count) }

    /// Starts to listen.
    func start(on group: any EventLoopGroup) async throws(ProviderError) {
        for socket in sockets {
            let listener = try await HostListener(socket, limits, on: group, logger: logger) { [self] channel, peer in
                take(channel, peer)
            }
            listeners.withLock { $0.append(listener) }
        }
    }

    /// Takes no more connections, and closes those that are open.
    func stop() async {
        for listener in listeners.withLock(\.self) { await listener.stop() }
        for channel in open.withLock({ Array($0.values) }) { channel.close(promise: nil) }
    }

    /// Removes the sockets' files that were made here. For the end of the process.
    func removeFiles() { for socket in sockets { socket.removeFile() } }

    private func take(_ channel: any Channel, _ peer: SocketPeer) -> EventLoopFuture<Void> {
        // A call that goes on after its connection has ended still takes one.
        guard let place = places.take(peer.user) else {
            if let count = lines.note("\(peer.user) has too many calls") {
                logger.warning(
                    "a connection is one too many",
                    metadata: [
                        "user": "\(peer.user)", "process": "\(peer.process)", "count": "\(count)",
                        "reason": "calls of ended connections still wait for a key",
                    ])
            }
            return channel.eventLoop.makeFailedFuture(Refused.tooMany)
        }
        let id = ObjectIdentifier(channel)
        open.withLock { $0[id] = channel }
        channel.closeFuture.whenComplete { [self] _ in _ = open.withLock { $0.removeValue(forKey: id) } }
        let connection = TokenConnection { [self] identity in
            withExtendedLifetime(place) {}
            return await objects(for: peer, identity)
        } signed: { [logger, lines, events] object, error in
            if let error {
                guard let count = lines.note("\(object.label) \(error)") else { return }
                logger.warning(
                    "no signature",
                    metadata: ["identity": "\(object.label)", "reason": "\(error)", "count": "\(count)"])
            } else if events.note("\(peer.process) \(object.label)") != nil {
                let caller = "process \(peer.process) user \(peer.user)"
                IdentityEvent.served.write(
                    to: logger, object.identity, ["identity": object.label, "caller": caller])
            }
        }
        return channel.eventLoop.makeCompletedFuture {
            try channel.syncOptions?.setOption(.maxMessagesPerRead, value: 1)
            try channel.pipeline.syncOperations.addHandler(
                TokenChannel(connection, limit: limit) { peer.isRunning })
        }
    }

    /// Returns the objects that a caller may use at this moment; `nil` if its process has ended.
    ///
    /// - Parameter wanted: The identity that the caller wants to use; `nil` to see all.
    private func objects(for peer: SocketPeer, _ wanted: String?) async -> [TokenObject]? {
        let caller = try? await turns.run(peer.user) {
            try await looking.run { () throws(ProviderError) in Caller(peer) }
        }
        guard let caller, peer.isRunning else { return nil }
        let all = served()
        let granted = all.filter { $0.grants.refusal(of: caller) == nil }
        // A caller sees what it is granted. It is refused where it wants another one, or would see none at all.
        for one in all where wanted.map({ $0 == one.name }) ?? granted.isEmpty {
            _ = one.grants.refusal(of: caller, for: one.name, refusals, logger)
        }
        return TokenObject.objects(of: granted)
    }
}

package import CertificateProviding
import Glibc
package import Logging
package import NIOCore
import NIOPosix

/// Takes the connections of any user at a Unix socket: many at a time, bounded in total and for each user.
package final class HostListener: Sendable {
    package struct Limits: Sendable {
        package var total: Int, perUser: Int

        package init(total: Int, perUser: Int) { (self.total, self.perUser) = (total, perUser) }
    }

    /// Sets up a connection, which reads nothing by itself (`autoRead`) and may be half-closed. Called on its event loop. A connection
    /// whose future fails is closed.
    package typealias Setup = @Sendable (any Channel, SocketPeer) -> EventLoopFuture<Void>

    /// Sets up a connection that is one too many; `nil` closes it. Called on its event loop.
    package typealias Overflow = @Sendable (any Channel, SocketPeer) -> EventLoopFuture<Void>?

    private struct NotTaken: Error {}

    private let channel: any Channel
    private let socket: ListeningSocket

    /// Starts to take connections.
    ///
    /// - Parameters:
    ///   - places: Those of the process, which `limits` cannot exceed.
    ///   - overflow: Sets up connections for which there is no place. All are closed without it.
    ///   - logger: Gets a line a minute about each user with too many connections.
    /// - Throws: `unavailable` if the system cannot wait for connections.
    package init(
        _ socket: ListeningSocket, _ limits: Limits, on group: any EventLoopGroup,
        places: Places<Int> = .ofProcess, logger: Logger, overflow: Overflow? = nil, setup: @escaping Setup
    ) async throws(ProviderError) {
        // SwiftNIO closes the one that it gets.
        let copy = fcntl(socket.descriptor, F_DUPFD_CLOEXEC, 3)
        // With few descriptors one user would have the places of all.
        let users = Places<uid_t>(total: limits.total, each: min(limits.perUser, max(1, places.total / 4)))
        let lines = RepeatedLines()
        do {
            guard copy >= 0 else { throw IOError(errnoCode: errno, reason: "dup") }
            channel = try await ServerBootstrap(group: group)
                .childChannelOption(.autoRead, value: false)
                .childChannelOption(.allowRemoteHalfClosure, value: true)
                .childChannelInitializer { channel in
                    let peer = try? channel.pipeline.syncOperations.withUnsafeTransportIfAvailable(of: CInt.self) {
                        SocketPeer(of: $0)
                    }
                    guard let peer = peer ?? nil else { return channel.eventLoop.makeFailedFuture(NotTaken()) }
                    let place = (users.take(peer.user), places.take(0))
                    guard place.0 != nil, place.1 != nil else {
                        if let count = lines.note("\(peer.user)") {
                            let reason =
                                place.0 == nil ? "this user, or all, have as many as permitted" : Places<Int>.isFull
                            logger.warning(
                                "a connection is one too many",
                                metadata: [
                                    "user": "\(peer.user)", "process": "\(peer.process)", "reason": "\(reason)",
                                    "count": "\(count)",
                                ])
                        }
                        return overflow?(channel, peer) ?? channel.eventLoop.makeFailedFuture(NotTaken())
                    }
                    channel.closeFuture.whenComplete { _ in withExtendedLifetime(place) {} }
                    return setup(channel, peer)
                }
                .withBoundSocket(copy).get()
        } catch {
            throw ProviderError(.unavailable, "The socket cannot be waited for: \(error).", underlying: error)
        }
        self.socket = socket
    }

    /// Takes no more connections, and removes the socket's file if it was made here. Those that are open go on.
    package func stop() async {
        try? await channel.close()
        socket.removeFile()
    }
}

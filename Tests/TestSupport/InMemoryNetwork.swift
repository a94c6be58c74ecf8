import Glibc
public import NIOCore
public import NIOPosix
public import ProviderTransport
import Synchronization

/// A network without ports: a connection is a pair of sockets, one end for the client and one for a server of this
/// process.
public final class InMemoryNetwork: Network {
    public typealias Initializer = @Sendable (any Channel) -> EventLoopFuture<Void>

    private struct Address: Hashable {
        var host: String
        var port: Int
    }

    private struct Server {
        var group: any EventLoopGroup
        var prepare: Initializer
    }

    private struct State {
        var servers: [Address: Server] = [:]
        var connectionCount = 0
    }

    public let eventLoopGroup: any EventLoopGroup
    private let state = Mutex(State())

    public init(eventLoopGroup: any EventLoopGroup = .singletonMultiThreadedEventLoopGroup) {
        self.eventLoopGroup = eventLoopGroup
    }

    /// The connections that were made.
    public var connectionCount: Int { state.withLock(\.connectionCount) }

    /// Has a server take connections, in place of one that is there.
    ///
    /// - Parameters:
    ///   - group: The event loops of the server's ends.
    ///   - prepare: Adds the handlers of one.
    public func listen(on host: String, port: Int, group: any EventLoopGroup, _ prepare: @escaping Initializer) {
        state.withLock { $0.servers[Address(host: host, port: port)] = Server(group: group, prepare: prepare) }
    }

    public func connect(
        to host: String, port: Int, on eventLoop: any EventLoop, timeout: TimeAmount, prepare: @escaping Initializer
    ) -> EventLoopFuture<any Channel> {
        let server = state.withLock { state in
            let server = state.servers[Address(host: host, port: port)]
            if server != nil { state.connectionCount += 1 }
            return server
        }
        guard let server else {
            return eventLoop.makeFailedFuture(IOError(errnoCode: ECONNREFUSED, reason: "connect"))
        }
        var ends: [CInt] = [-1, -1]
        guard socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0 else {
            return eventLoop.makeFailedFuture(IOError(errnoCode: errno, reason: "socketpair"))
        }
        // The client's end reports the failures of the server's end.
        _ = ClientBootstrap(group: server.group).channelInitializer(server.prepare).withConnectedSocket(ends[0])
        return ClientBootstrap(group: eventLoop).channelInitializer(prepare).withConnectedSocket(ends[1])
    }
}

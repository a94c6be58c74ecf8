public import NIOCore
import NIOPosix

/// Opens the byte streams to servers and proxies. ``TCPNetwork`` is the real one; a test passes one in whose servers
/// are in the same process.
public protocol Network: Sendable {
    /// The event loops of the connections.
    var eventLoopGroup: any EventLoopGroup { get }

    /// Opens a byte stream. Returns at once.
    ///
    /// - Parameters:
    ///   - host: A DNS name or an IP address, without brackets.
    ///   - eventLoop: The event loop of the stream, one of ``eventLoopGroup``.
    ///   - timeout: How long it may take, over all addresses of the host.
    ///   - prepare: Adds the handlers of a stream, on its event loop and before it is active. Called for each address
    ///     that is tried; fails if the attempt was cancelled.
    /// - Returns: The stream that is open. Fails with an error of SwiftNIO, such as `NIOConnectionError` or `IOError`.
    func connect(
        to host: String, port: Int, on eventLoop: any EventLoop, timeout: TimeAmount,
        prepare: @escaping @Sendable (any Channel) -> EventLoopFuture<Void>
    ) -> EventLoopFuture<any Channel>
}

/// TCP, with the names that the host's resolver knows.
public struct TCPNetwork: Network {
    /// `nil` for the shared ones, whose threads start with the first connection.
    private let group: (any EventLoopGroup)?

    /// Creates the network. Opens no connection.
    ///
    /// - Parameter eventLoopGroup: The event loops of the connections; by default those that SwiftNIO shares in a
    ///   process, started with the first connection.
    public init(eventLoopGroup: (any EventLoopGroup)? = nil) { group = eventLoopGroup }

    public var eventLoopGroup: any EventLoopGroup { group ?? MultiThreadedEventLoopGroup.singleton }

    public func connect(
        to host: String, port: Int, on eventLoop: any EventLoop, timeout: TimeAmount,
        prepare: @escaping @Sendable (any Channel) -> EventLoopFuture<Void>
    ) -> EventLoopFuture<any Channel> {
        ClientBootstrap(group: eventLoop).connectTimeout(timeout).channelInitializer(prepare)
            .connect(host: host, port: port)
    }
}

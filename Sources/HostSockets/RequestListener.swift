import CLinux
package import CertificateProviding
import Glibc
package import Logging
import Synchronization

/// Answers the requests that arrive at a socket: one for each connection. The client writes the URL and closes its writing side, and
/// gets the reply and the end.
///
/// One thread waits for all connections. Its bounds keep memory flat, and a client that is slow, silent or too large from
/// costing others anything but its own place.
package struct RequestListener: Sendable {
    /// Answers a request. It is cancelled if the client goes; a reply is dropped then.
    ///
    /// - Parameters:
    ///   - request: The bytes that the client has written, cut to one more than the largest request has.
    ///   - peer: The client's program and process: a hint, since a process can become another program.
    ///   - release: To be called when the request is no longer in memory, if that is before the reply: the next one may then
    ///     exceed the shared size.
    package typealias Handler =
        @Sendable (
            _ request: consuming [UInt8], _ peer: String, _ release: @escaping @Sendable () -> Void
        ) async -> String

    package struct Limits: Sendable {
        /// The connections at one time. Others wait in the backlog.
        package var connections = 64
        /// How long a client may take to write its request, and to read its reply.
        package var time: Duration = .seconds(30)
        /// The size, in bytes, that one connection at a time may exceed. Others wait at it, and their time stands still.
        package var shared = 1 << 20
        /// The largest request that can be valid, in bytes.
        package var largest: Int
        /// The pause after a connection could not be taken, such as for want of descriptors.
        package var pause: Duration = .seconds(1)
        /// Whether root gets replies, too, from a service of another user.
        package var admitsRoot = false

        /// - Parameter largest: The largest request that can be valid, in bytes.
        package init(largest: Int) { self.largest = largest }
    }

    private let socket: ListeningSocket
    private let limits: Limits
    private let logger: Logger
    private let handle: Handler

    package init(_ socket: ListeningSocket, _ limits: Limits, logger: Logger, handle: @escaping Handler) {
        (self.socket, self.limits, self.logger, self.handle) = (socket, limits, logger, handle)
    }

    /// Answers requests until the task is cancelled.
    ///
    /// - Throws: `unavailable` if the system cannot wait for connections.
    package func run() async throws(ProviderError) {
        guard let wakeUp = WakeUp() else {
            throw ProviderError(
                .unavailable, "The socket cannot be waited for: \(errorText(errno)).")
        }
        let result = await withTaskCancellationHandler { () -> Result<Void, ProviderError> in
            do throws(ProviderError) {
                return .success(
                    try await BlockingExecutor.threads(maximum: 1).run { () throws(ProviderError) in
                        try Connections(socket, limits, logger, handle, wakeUp).run()
                    })
            } catch { return .failure(error) }
        } onCancel: {
            wakeUp.stop()
        }
        try result.get()
    }
}

/// Wakes the thread that waits for connections.
private final class WakeUp: Sendable {
    struct State {
        /// The connections whose requests are no longer in memory, with or without a reply.
        var released: [Int] = []
        var replies: [(connection: Int, text: String)] = []
        var isStopped = false
    }

    let descriptor: Int32
    private let state = Mutex(State())

    init?() {
        descriptor = certprov_event()
        if descriptor < 0 { return nil }
    }

    deinit { close(descriptor) }

    func reply(_ text: String, to connection: Int) {
        state.withLock { $0.replies.append((connection, text)) }
        wake()
    }

    func release(_ connection: Int) {
        state.withLock { $0.released.append(connection) }
        wake()
    }

    func stop() {
        state.withLock { $0.isStopped = true }
        wake()
    }

    /// Returns the events since the last call.
    func takeEvents() -> State {
        var count: UInt64 = 0
        _ = read(descriptor, &count, 8)
        return state.withLock { state in
            defer { (state.released, state.replies) = ([], []) }
            return state
        }
    }

    private func wake() {
        var one: UInt64 = 1
        _ = write(descriptor, &one, 8)
    }
}

/// A request that is handed over once: what a task captures would live as long as the task.
private final class RequestBytes: Sendable {
    private let request: Mutex<[UInt8]>

    init(_ request: [UInt8]) { self.request = Mutex(request) }

    func take() -> [UInt8] {
        request.withLock { request in
            defer { request = [] }
            return request
        }
    }
}

/// The connections, and the thread that waits for them.
private struct Connections {
    private struct Connection {
        enum Phase {
            case reads
            /// Reads again when no other connection is beyond the shared size.
            case waitsForRoom
            case isHandled(Task<Void, Never>)
            case writes(String, sent: Int)
            /// The client has gone, and the handler still runs: the connection counts until it returns.
            case isGone
        }

        let number: Int
        /// Below zero once it is closed.
        var descriptor: Int32
        let peer: String
        var phase = Phase.reads
        var request: [UInt8] = []
        /// While it reads or writes.
        var deadline: ContinuousClock.Instant?
        /// Whether it is the one that may go beyond the shared size.
        var isLarge = false

        var isOver: Bool {
            if descriptor >= 0 { return false }
            if case .isGone = phase { return false }
            return true
        }

        mutating func close() {
            if descriptor >= 0 { Glibc.close(descriptor) }
            descriptor = -1
            deadline = nil
            request = []
            if case .isHandled(let task) = phase {
                task.cancel()
                phase = .isGone
            } else {
                phase = .reads
            }
        }
    }

    private let socket: ListeningSocket
    private let limits: RequestListener.Limits
    private let logger: Logger
    private let handle: RequestListener.Handler
    private let wakeUp: WakeUp

    private var connections: [Connection] = []
    private var count = 0
    /// When connections are taken again.
    private var pausedUntil: ContinuousClock.Instant?
    private var buffer = [UInt8](repeating: 0, count: 1 << 16)

    init(
        _ socket: ListeningSocket, _ limits: RequestListener.Limits, _ logger: Logger,
        _ handle: @escaping RequestListener.Handler,
        _ wakeUp: WakeUp
    ) {
        (self.socket, self.limits, self.logger, self.handle, self.wakeUp) = (socket, limits, logger, handle, wakeUp)
    }

    /// Handles events until it is stopped.
    consuming func run() throws(ProviderError) {
        defer { for index in connections.indices { connections[index].close() } }
        while true {
            let accepts = connections.count < limits.connections && pausedUntil == nil
            var events = [
                pollfd(fd: wakeUp.descriptor, events: Int16(POLLIN), revents: 0),
                pollfd(fd: accepts ? socket.descriptor : -1, events: Int16(POLLIN), revents: 0),
            ]
            // Without closed ones: poll(2) takes at most as many as there may be open files.
            let open = connections.indices.filter { connections[$0].descriptor >= 0 }
            for index in open {
                events.append(
                    pollfd(fd: connections[index].descriptor, events: Self.events(connections[index]), revents: 0))
            }
            let deadline = (connections.compactMap(\.deadline) + [pausedUntil].compactMap(\.self)).min()
            guard poll(&events, nfds_t(events.count), deadline.map(milliseconds) ?? -1) >= 0 || errno == EINTR else {
                throw ProviderError(
                    .unavailable, "The socket cannot be waited for: \(errorText(errno)).")
            }
            if events[0].revents != 0 {
                let news = wakeUp.takeEvents()
                if news.isStopped { return }
                for index in connections.indices where news.released.contains(connections[index].number) {
                    connections[index].isLarge = false
                }
                for (number, text) in news.replies { answer(number, text) }
            }
            for (index, event) in zip(open, events.dropFirst(2)) where event.revents != 0 {
                proceed(with: index, isGone: event.revents & Int16(POLLHUP | POLLERR) != 0)
            }
            let now = ContinuousClock.now
            for index in connections.indices where connections[index].deadline.map({ $0 <= now }) == true {
                connections[index].close()
            }
            if pausedUntil.map({ $0 <= now }) == true { pausedUntil = nil }
            let before = connections.count
            connections.removeAll(where: \.isOver)
            if connections.count < before { pausedUntil = nil }
            giveRoom()
            if events[1].revents != 0 { accept() }
        }
    }

    /// Returns the events that a connection waits for. poll(2) reports without being asked that both directions are closed. One closed
    /// direction ends a request, and is read as its end.
    private static func events(_ connection: Connection) -> Int16 {
        switch connection.phase {
        case .reads: Int16(POLLIN)
        case .writes: Int16(POLLOUT)
        case .waitsForRoom, .isHandled, .isGone: 0
        }
    }

    private mutating func accept() {
        // A bounded number at a time: connections of other users take no place, and there may be many.
        for _ in 0..<limits.connections where connections.count < limits.connections {
            let descriptor = certprov_accept(socket.descriptor)
            guard descriptor >= 0 else {
                if [EAGAIN, EINTR, ECONNABORTED].contains(errno) { return }
                // The socket stays ready: without a pause this loop would spin.
                logger.warning("no connection can be taken now: \(errorText(errno))")
                pausedUntil = .now + limits.pause
                return
            }
            guard let peer = SocketPeer(of: descriptor),
                peer.user == geteuid() || limits.admitsRoot && peer.user == 0
            else {
                close(descriptor)
                continue
            }
            count += 1
            connections.append(
                Connection(
                    number: count, descriptor: descriptor, peer: Self.describe(peer.process),
                    deadline: .now + limits.time))
        }
    }

    private mutating func proceed(with index: Int, isGone: Bool) {
        switch connections[index].phase {
        case .writes: write(index)
        // The reply could not reach a client that has closed both directions.
        case _ where isGone: connections[index].close()
        case .reads: read(index)
        case .waitsForRoom, .isHandled, .isGone: break
        }
    }

    private mutating func read(_ index: Int) {
        let got = Glibc.read(connections[index].descriptor, &buffer, buffer.count)
        guard got != 0 else { return begin(index) }
        guard got > 0 else {
            if errno != EAGAIN && errno != EINTR { connections[index].close() }
            return
        }
        // A client that is read to its end gets a reply. The bytes that are too many are dropped.
        let size = connections[index].request.count
        connections[index].request += buffer[..<min(got, limits.largest + 1 - size)]
        if size + got > limits.shared, !connections[index].isLarge {
            connections[index].phase = .waitsForRoom
            connections[index].deadline = nil
        }
    }

    /// Lets one connection go beyond the shared size: the one that came first.
    private mutating func giveRoom() {
        guard !connections.contains(where: \.isLarge),
            let index = connections.firstIndex(where: { if case .waitsForRoom = $0.phase { true } else { false } })
        else { return }
        connections[index].isLarge = true
        connections[index].phase = .reads
        connections[index].deadline = .now + limits.time
        // Pages that are never written take no memory. An array that grows would be there twice.
        connections[index].request.reserveCapacity(limits.largest + 1)
    }

    private mutating func begin(_ index: Int) {
        let (number, peer) = (connections[index].number, connections[index].peer)
        let request = RequestBytes(connections[index].request)
        connections[index].request = []
        connections[index].deadline = nil
        connections[index].phase = .isHandled(
            Task { [handle, wakeUp] in
                wakeUp.reply(await handle(request.take(), peer, { wakeUp.release(number) }), to: number)
            })
    }

    private mutating func answer(_ number: Int, _ text: String) {
        guard let index = connections.firstIndex(where: { $0.number == number }) else { return }
        guard connections[index].descriptor >= 0 else {
            connections[index].phase = .reads
            return
        }
        connections[index].phase = .writes(text, sent: 0)
        connections[index].deadline = .now + limits.time
        write(index)
    }

    private mutating func write(_ index: Int) {
        guard case .writes(var text, let sent) = connections[index].phase else { return }
        let descriptor = connections[index].descriptor
        let (count, size) = text.withUTF8 { bytes in
            (
                send(descriptor, bytes.baseAddress.map { $0 + sent }, bytes.count - sent, Int32(MSG_NOSIGNAL)),
                bytes.count
            )
        }
        if count < 0 && (errno == EAGAIN || errno == EINTR) { return }
        connections[index].phase = .writes(text, sent: sent + max(0, count))
        // The kernel stores the rest for the client.
        if count < 0 || sent + count == size { connections[index].close() }
    }

    /// The name, the program and the number of a process, as far as they can be seen.
    private static func describe(_ process: Int32) -> String {
        var buffer = [UInt8](repeating: 0, count: 4096)
        let length = readlink("/proc/\(process)/exe", &buffer, buffer.count)
        let program = String(decoding: buffer.prefix(max(0, length)), as: UTF8.self)
        var name = ""
        let file = open("/proc/\(process)/comm", O_RDONLY | O_CLOEXEC)
        if file >= 0 {
            let length = Glibc.read(file, &buffer, 64)
            // It ends a line.
            name = String(decoding: buffer.prefix(max(0, length - 1)), as: UTF8.self)
            close(file)
        }
        let known = [name, program].filter { !$0.isEmpty }.joined(separator: ", ")
        return (known.isEmpty ? "process \(process)" : "\(known), process \(process)").withVisibleControls
    }
}

import CertificateProviding
import Dispatch
import FoundationEssentials
import Glibc
import PluginProtocol

/// One process of a plugin: its connection, the tail of its standard error, and its end.
final class PluginProcess: PeerServices {
    private let program: PluginProgram
    private let launched: LaunchedPlugin
    private let services: HostServices
    private struct State {
        var tail: [UInt8] = []
        var errors = LineBuffer()
        /// Why this side has ended it; nil where the plugin did.
        var reason: ProviderError?
        var hasEnded = false
        var ignored: String?
        /// Whether the plugin answers `shutdown`.
        var answersShutdown = false
        var isFinishing = false
        /// How it has ended when its input ended; nil for one that did not.
        var end: LaunchedPlugin.End?
        var waiters: [@Sendable () -> Void] = []
    }
    private let state = BlockingMutex(State())
    private let observer: PluginObserver?
    private let onLoss: @Sendable (PluginProcess, ProviderError) -> Void
    private let onEnd: @Sendable (PluginProcess) -> Void
    private let peerBox = BlockingMutex<Peer?>(nil)

    /// How much of standard error is shown, in bytes.
    private static let tailSize = 2048
    /// How long a plugin may take to end when its input ends, and again after SIGTERM, in milliseconds.
    private static let endTime: Int32 = 2000
    /// How long is waited for processes that are killed, in milliseconds.
    private static let killTime: Int32 = 5000

    /// Starts the program. Blocks until the launcher runs, not until the plugin answers.
    /// - Parameters:
    ///   - onLoss: Called on the connection's thread when requests are no longer answered, before those fail that wait.
    ///   - onEnd: Called on that thread when no process is left.
    init(
        _ program: PluginProgram, launcher: String, environment: [String: String], _ services: HostServices,
        observer: PluginObserver?,
        onLoss: @escaping @Sendable (PluginProcess, ProviderError) -> Void,
        onEnd: @escaping @Sendable (PluginProcess) -> Void
    ) throws(ProviderError) {
        (self.program, self.services, self.onLoss, self.onEnd) = (program, services, onLoss, onEnd)
        self.observer = observer
        launched = try LaunchedPlugin(program, launcher: launcher, environment: environment)
    }

    private var trace: MessageChannel.Trace? {
        guard let observer else { return nil }
        let id = program.id
        return { isSent, line in observer(PluginEvent(id, isSent ? .sent : .received, line)) }
    }

    /// Connects to the plugin.
    func connect() throws(ProviderError) -> Peer {
        observer?(PluginEvent(program.id, .start, program.path.withVisibleControls))
        let channel: MessageChannel
        do throws(ProviderError) {
            channel = try MessageChannel(
                input: launched.output, output: launched.input, others: [launched.errors],
                peer: "The plugin '\(program.id)'",
                trace: trace)
        } catch {
            launched.reap()
            onEnd(self)
            noteEnd()
            throw error
        }
        let peer = Peer(channel, self)
        peerBox.withLock { $0 = peer }
        // One that was ended before it was connected.
        if let reason = state.withLock({ $0.reason }) { channel.end(reason) }
        peer.start()
        return peer
    }

    /// Notes that the plugin answers `shutdown`.
    func willAnswerShutdown() { state.withLock { $0.answersShutdown = true } }

    /// How long a plugin may take to finish what must not be cut off.
    private static let shutdownTime = Duration.seconds(2)

    /// Ends the process when it has finished what must not be cut off, for which the host still works. Returns at once.
    func finish(_ reason: ProviderError) {
        let (isFinishing, isAsked) = state.withLock { state in
            defer { state.isFinishing = true }
            return (state.isFinishing, state.answersShutdown && state.reason == nil)
        }
        if isFinishing { return }
        guard isAsked, let channel = peerBox.withLock({ $0?.channel }) else { return end(reason) }
        channel.send("shutdown", Nothing(), .total(Self.shutdownTime), isAwaited: true) { _ in self.end(reason) }
    }

    /// Ends the process. Its requests fail with `reason`. Returns at once.
    func end(_ reason: ProviderError) {
        state.withLock { if $0.reason == nil { $0.reason = reason } }
        peerBox.withLock { $0 }?.channel.end(reason)
    }

    /// Ends the process and everything that it has started at once, for a host that does not wait.
    func kill() { launched.killAll(atMost: Self.killTime) }

    /// Whether it has ended by itself when its input ended.
    var hasEndedByItself: Bool { state.withLock { $0.end != nil } }

    /// Waits until no process is left.
    func waitForEnd() async {
        await withCheckedContinuation { continuation in whenEnded { continuation.resume() } }
    }

    /// Calls `body` once no process is left.
    func whenEnded(_ body: @escaping @Sendable () -> Void) {
        let hasEnded = state.withLock { state in
            if !state.hasEnded { state.waiters.append(body) }
            return state.hasEnded
        }
        if hasEnded { body() }
    }

    // MARK: - The connection

    func receive(_ request: IncomingRequest, from peer: Peer) { services.receive(request, from: peer) }

    func receive(notice name: String, _ message: Message, from peer: Peer) throws(ProviderError) {
        try services.receive(notice: name, message)
    }

    func read(_ bytes: ArraySlice<UInt8>, from descriptor: Int32) {
        let lines = state.withLock { state in
            state.tail += bytes.suffix(Self.tailSize) as ArraySlice
            if state.tail.count > Self.tailSize { state.tail.removeFirst(state.tail.count - Self.tailSize) }
            return state.errors.lines(with: bytes)
        }
        for line in lines {
            services.log(standardError: line)
            observer?(PluginEvent(program.id, .standardError, line.withVisibleControls))
        }
    }

    func cancellationWasIgnored(_ request: String) {
        let error = ProviderError(
            .unavailable,
            "The plugin '\(program.id)' was ended: it did not answer the request '\(request)', nor its cancellation. "
                + "Look at its messages with 'certprov plugin trace'.",
            provider: program.id)
        state.withLock { if $0.ignored == nil { $0.ignored = request } }
        // Also callers of the next moment use another process.
        onLoss(self, error)
        end(error)
    }

    /// The first request that it did not answer, nor its cancellation.
    var ignoredCancellation: String? { state.withLock(\.ignored) }

    func explain(_ error: ProviderError) -> ProviderError {
        let reason = reason(for: error)
        onLoss(self, reason)
        return reason
    }

    private func reason(for error: ProviderError) -> ProviderError {
        if let reason = state.withLock({ $0.reason }) { return reason }
        if error.code == .protocolError { return error }
        let end = launched.wait(atMost: Self.endTime)
        readRest()
        let how: String
        switch end {
        case .exit(let status): how = "has ended with the status \(status)"
        case .signal(let number): how = "was ended by the signal \(number)"
        case .noStart(let code) where code == ENOENT || code == ENOEXEC:
            how = "cannot be executed: the program or its interpreter is missing, or of another format"
        case .noStart(let code): how = "cannot be executed: \(errorText(code))"
        case .noDirectory(let code):
            how = "gets no working directory in TMPDIR, or /tmp: \(errorText(code))"
        case nil: how = "has closed its standard output"
        }
        let tail = tail
        return ProviderError(
            .unavailable,
            "The plugin '\(program.id)' \(how)."
                + (tail.isEmpty ? " It wrote nothing to standard error." : " The end of its standard error: \(tail)")
                + " (\(program.path.withVisibleControls))",
            provider: program.id)
    }

    private func readRest() {
        var buffer = [UInt8](repeating: 0, count: 16 << 10)
        for _ in 0..<16 {
            let count = Glibc.read(launched.errors, &buffer, buffer.count)
            guard count > 0 else { return }
            read(buffer[..<count], from: launched.errors)
        }
    }

    /// The end of standard error, on one line.
    private var tail: String {
        String(decoding: state.withLock { $0.tail }, as: UTF8.self).split(whereSeparator: \.isNewline).suffix(8)
            .joined(separator: " | ").withVisibleControls
    }

    func ended(_ error: ProviderError) {
        if launched.isStopped {
            // It does not end the plugin.
        } else if let end = launched.wait(atMost: Self.endTime) {
            state.withLock { $0.end = end }
        } else {
            launched.terminate()
            _ = launched.wait(atMost: Self.endTime)
        }
        let isGone = launched.kill(atMost: Self.killTime)
        if !isGone { launched.killAll(atMost: Self.killTime) }
        // Its leases are another process's from now on.
        services.close()
        observer?(PluginEvent(program.id, .end, error.message))
        // The peer has this object as its services.
        peerBox.withLock { $0 = nil }
        if isGone { launched.reap() }
        onEnd(self)
        noteEnd()
        if !isGone { launched.reap() }
    }

    private func noteEnd() {
        let waiters = state.withLock { state in
            state.hasEnded = true
            defer { state.waiters = [] }
            return state.waiters
        }
        for waiter in waiters { waiter() }
    }
}

/// The processes of a host that have not ended.
final class PluginProcesses: Sendable {
    private struct State {
        var all: [PluginProcess] = []
        var isClosed = false
    }
    private let state = BlockingMutex(State())
    private let ignored = BlockingMutex<String?>(nil)
    private let unsupported = BlockingMutex<String?>(nil)

    func add(_ process: PluginProcess) { state.withLock { $0.all.append(process) } }

    /// Adds the process that `start` starts, with the lock held: at no moment is there one that ``close()`` and ``kill()`` do not know.
    /// A plugin can stop its launcher at once, which then does not see the end of this process.
    ///
    /// - Throws: Also `operationNotAllowed` after ``close()``.
    func add(_ start: () throws(ProviderError) -> PluginProcess) throws(ProviderError) -> PluginProcess {
        try state.withLock { state throws(ProviderError) in
            guard !state.isClosed else {
                throw ProviderError(.operationNotAllowed, "This program is ending, and starts no plugin any more.")
            }
            let process = try start()
            state.all.append(process)
            return process
        }
    }

    /// Lets no further process start.
    ///
    /// - Returns: Whether there is one that has not ended.
    func close() -> Bool {
        state.withLock { state in
            state.isClosed = true
            return !state.all.isEmpty
        }
    }

    func remove(_ process: PluginProcess) {
        if let request = process.ignoredCancellation { ignored.withLock { $0 = request } }
        state.withLock { state in state.all.removeAll { $0 === process } }
    }

    /// The request that the last process which did not answer a cancellation was ended for.
    var ignoredCancellation: String? { ignored.withLock(\.self) }

    /// Notes that a plugin does not support a request that it should.
    func note(unsupported message: String) { unsupported.withLock { $0 = message } }

    /// Returns the last such message, once.
    func takeUnsupported() -> String? {
        unsupported.withLock { message in
            defer { message = nil }
            return message
        }
    }

    /// Blocks until those that there are have ended, for the bounded time that this takes.
    func wait() {
        let ended = DispatchGroup()
        for process in state.withLock(\.all) {
            ended.enter()
            process.whenEnded { ended.leave() }
        }
        ended.wait()
    }

    /// Ends all of them at once, for a host that does not wait.
    func kill() { for process in state.withLock(\.all) { process.kill() } }

    /// Ends all of them in order, and waits for that.
    func end(_ reason: ProviderError) async {
        let processes = state.withLock(\.all)
        for process in processes { process.finish(reason) }
        for process in processes { await process.waitForEnd() }
    }
}

/// Cuts a stream into lines. Of a flood, only a part is seen.
struct LineBuffer {
    private var rest: [UInt8] = []
    /// The greatest length of a line, and how much of one read is looked at, in bytes.
    private static let (maximumLine, maximumRead) = (1024, 16 << 10)

    mutating func lines(with bytes: ArraySlice<UInt8>) -> [String] {
        rest += bytes.suffix(Self.maximumRead) as ArraySlice
        var parts = rest.split(separator: 0x0a, omittingEmptySubsequences: false)
        rest = parts.popLast().map { Array($0.suffix(Self.maximumLine)) } ?? []
        return parts.filter { !$0.isEmpty }.map { String(decoding: $0.prefix(Self.maximumLine), as: UTF8.self) }
    }
}

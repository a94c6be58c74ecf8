import CertificateProviding
import FoundationEssentials
import Glibc
import PluginProtocol

/// One configured use of a plugin: its provider or its key store. Has one process at most, which is started when it is needed
/// and ends when it is idle.
final class PluginInstance: PeerSource {
    /// What an instance is made of.
    struct Plan: Sendable {
        let program: @Sendable () throws(CertificateProviderError) -> PluginProgram
        let launcher: @Sendable () throws(CertificateProviderError) -> String
        /// The variables that the plugin gets beside the usual ones, by name.
        let variables: [String]
        /// Sent before everything else; nil for an instance that is asked for its description only.
        let configuration: Configure?
        let timeout: Duration
        let processes: PluginProcesses
        let observer: PluginObserver?
        /// Whether this start sends messages that no version of the protocol has.
        let sendsUnknown: @Sendable () -> Bool
    }

    let id: ProviderID
    let timeout: Duration
    let executor: BlockingExecutor
    private let plan: Plan
    /// Its processes that have not ended.
    private let processes = PluginProcesses()
    private let services: @Sendable (PluginInstance) -> HostServices
    private struct State {
        var process: PluginProcess?
        var peer: Peer?
        var services: HostServices?
        var starts: [ContinuousClock.Instant] = []
        var lastFailure: CertificateProviderError?
        var isShutDown = false
        /// Whether the last start was one too many.
        var isRefused = false
        var uses = 0
        var pinSources: Set<String> = []
        /// Those who follow what the plugin announces.
        var followers: [UInt64: AsyncStream<Void>.Continuation] = [:]
        var nextFollower: UInt64 = 0
    }
    private let state = BlockingMutex(State())
    /// Held by the thread that starts the process.
    private let starting = BlockingMutex<Void>(())

    /// How often a plugin may be started within a minute.
    private static let maximumStarts = 5
    /// How long a process without requests is kept.
    private static let idleTime = Duration.seconds(60)

    init(
        _ id: ProviderID, _ plan: Plan, executor: BlockingExecutor,
        services: @escaping @Sendable (PluginInstance) -> HostServices
    ) {
        (self.id, self.plan, self.timeout, self.executor) = (id, plan, plan.timeout, executor)
        self.services = services
    }

    func describing(_ error: CertificateProviderError) -> CertificateProviderError {
        var error = error
        if error.code == .unsupportedRequest { error.code = .protocolError }
        let name = "The plugin '\(id)'"
        if !error.message.contains(name) { error.message = "\(name): \(error.message)" }
        error.provider = error.provider ?? id
        return error
    }

    var livePeer: Peer? {
        state.withLock { state in
            state.uses += 1
            return state.peer
        }
    }

    // MARK: - Announcements

    /// Returns what the plugin announces. It runs as long as someone follows, and is started for that.
    func announcements() -> AsyncStream<Void> {
        let (stream, continuation) = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))
        let isShutDown = state.withLock { state in
            guard !state.isShutDown else { return true }
            let number = state.nextFollower
            state.nextFollower += 1
            state.followers[number] = continuation
            continuation.onTermination = { [weak self] _ in
                _ = self?.state.withLock { $0.followers.removeValue(forKey: number) }
            }
            return false
        }
        if isShutDown { continuation.finish() }
        // A failure is shown to the next one who uses the plugin.
        executor.submit { [weak self] in _ = try? self?.peer() }
        return stream
    }

    /// The plugin has something new, or may have had before it ended.
    func announce() {
        let followers = state.withLock { $0.followers.values.map(\.self) }
        for follower in followers { follower.yield() }
    }

    /// Lets the plugin ask for the PIN of its key store.
    func permit(pinSource: SecretSource) {
        let services = state.withLock { state in
            state.pinSources.insert(pinSource.description)
            return state.services
        }
        services?.permit(pinSource: pinSource.description)
    }

    func peer() throws(CertificateProviderError) -> Peer {
        if let live = livePeer { return live }
        let result = starting.withLock { _ in
            Result { () throws(CertificateProviderError) in try start().0 }
        }
        return try result.get()
    }

    /// Starts the plugin, unless another thread has done so, and returns what it says of itself where it was started here.
    private func start() throws(CertificateProviderError) -> (Peer, Hello?) {
        if let live = livePeer { return (live, nil) }
        do throws(CertificateProviderError) {
            let program = try plan.program()
            try countStart()
            let services = services(self)
            for source in state.withLock({ $0.pinSources }) { services.permit(pinSource: source) }
            let process = try launch(program, services)
            for list in [processes, plan.processes] { list.add(process) }
            state.withLock { $0.process = process }
            let peer = try process.connect()
            do throws(CertificateProviderError) {
                let hello = try greet(peer)
                if let configuration = plan.configuration {
                    let _: Nothing = try peer.call("configure", configuration, .total(timeout))
                }
                peer.channel.limitConcurrency(to: hello.concurrency ?? 1)
                if hello.shutdown == true { process.willAnswerShutdown() }
                if plan.configuration != nil, plan.sendsUnknown() { try sendUnknown(to: peer) }
                let failure = state.withLock { state -> CertificateProviderError? in
                    if state.isShutDown { return Self.shutDown }
                    // It may have ended just now.
                    guard state.process === process else { return state.lastFailure ?? Self.shutDown }
                    (state.peer, state.services) = (peer, services)
                    return nil
                }
                if let failure { throw failure }
                watch(peer, process)
                return (peer, hello)
            } catch {
                process.end(error)
                throw error
            }
        } catch {
            let described = describing(error)
            state.withLock { state in
                // Not that it was started too often.
                if !state.isRefused { state.lastFailure = described }
            }
            throw described
        }
    }

    private static let shutDown = CertificateProviderError(
        .operationNotAllowed, "The provider has been shut down; make a new one.")

    private func countStart() throws(CertificateProviderError) {
        let now = ContinuousClock.now
        let (isShutDown, isTooOften, failure) = state.withLock { state -> (Bool, Bool, CertificateProviderError?) in
            state.starts.removeAll { now - $0 > .seconds(60) }
            let isTooOften = state.starts.count >= Self.maximumStarts
            if !isTooOften { state.starts.append(now) }
            state.isRefused = isTooOften
            return (state.isShutDown, isTooOften, state.lastFailure)
        }
        if isShutDown { throw Self.shutDown }
        guard isTooOften else { return }
        throw CertificateProviderError(
            failure?.code ?? .unavailable,
            "The plugin '\(id)' was started \(Self.maximumStarts) times within a minute, and is not started again before that "
                + "is over. " + (failure.map { "The last error: \($0.message)" } ?? "Each time it ended."), provider: id
        )
    }

    /// Sends a notice and a request that no version of the protocol has, so that plugins stay tolerant. Any answer will do.
    private func sendUnknown(to peer: Peer) throws(CertificateProviderError) {
        let name = "x-unknown-\(UInt16.random(in: 0...UInt16.max))"
        peer.channel.notify(name, Nothing())
        do throws(CertificateProviderError) {
            let _: Nothing = try peer.call(name, Nothing(), .total(timeout))
        } catch {
            guard error.code == .timedOut else { return }
            throw CertificateProviderError(
                .protocolError,
                "It did not answer a request that it does not know within \(timeout.components.seconds) seconds; check it with "
                    + "'certprov plugin verify'.")
        }
    }

    private func launch(
        _ program: PluginProgram, _ services: HostServices
    ) throws(CertificateProviderError) -> PluginProcess {
        let process = try PluginProcess(
            program, launcher: try plan.launcher(), environment: PluginLauncher.environment(with: plan.variables),
            services,
            observer: plan.observer,
            onLoss: { [weak self] process, error in self?.lose(process, error) },
            onEnd: { [processes, all = plan.processes] process in
                processes.remove(process)
                all.remove(process)
            })
        return process
    }

    private func greet(_ peer: Peer) throws(CertificateProviderError) -> Hello {
        let hello: Hello = try peer.call(
            "hello", Hello.Request(versions: Hello.versions, host: "certprov"), .total(timeout))
        guard Hello.versions.contains(hello.version) else {
            throw CertificateProviderError(
                .protocolError,
                "It speaks version \(hello.version) of the plugin protocol; this host knows "
                    + Hello.versions.map(String.init).joined(separator: ", ") + ".")
        }
        guard hello.id == id.rawValue else {
            throw CertificateProviderError(
                .protocolError,
                "It calls itself '\(hello.id.withVisibleControls.prefix(64))'; its file must be called "
                    + "\(PluginDirectories.prefix) and that name.")
        }
        return hello
    }

    /// Starts the plugin and ends it again.
    func describe() throws(CertificateProviderError) -> Hello {
        let result = starting.withLock { _ in
            Result { () throws(CertificateProviderError) in try start() }
        }
        guard let hello = try result.get().1 else { throw describing(Self.shutDown) }
        end(CertificateProviderError(.operationNotAllowed, "It was started for its description only."))
        return hello
    }

    /// Notices the end of a process, and ends one that is idle.
    private func watch(_ peer: Peer, _ process: PluginProcess) {
        let uses = state.withLock { $0.uses }
        peer.channel.after(Self.idleTime) { [weak self] in
            guard let self else {
                return process.finish(
                    CertificateProviderError(.operationNotAllowed, "The provider is not used any more."))
            }
            let isUsed = state.withLock { $0.uses != uses || !$0.followers.isEmpty } || !peer.channel.isIdle
            if isUsed { return watch(peer, process) }
            end(CertificateProviderError(.unavailable, "It was ended, since it was idle."))
        }
    }

    /// The process answers no more requests. The next use starts another one.
    private func lose(_ process: PluginProcess, _ error: CertificateProviderError) {
        let isLost = state.withLock { state in
            guard state.process === process else { return false }
            (state.process, state.peer, state.services) = (nil, nil, nil)
            state.lastFailure = error
            return true
        }
        // Followers ask, and so start it again.
        if isLost { announce() }
    }

    /// Ends the process. The next use starts another one.
    func end(_ reason: CertificateProviderError) {
        let process = state.withLock { state in
            state.peer = nil
            return state.process
        }
        process?.finish(describing(reason))
    }

    /// Ends the process for good, and waits for that.
    func shutdown() async {
        let followers = state.withLock { state in
            state.isShutDown = true
            (state.peer, state.services) = (nil, nil)
            return state.followers.values.map(\.self)
        }
        for follower in followers { follower.finish() }
        await processes.end(describing(Self.shutDown))
    }

    deinit {
        state.withLock { $0.process }?.finish(
            CertificateProviderError(.operationNotAllowed, "The provider is not used any more.", provider: id))
    }
}

import CertificateProviding
import FoundationEssentials
import Glibc
import PluginProtocol

/// One configured use of a plugin: its provider or its key store. Has one process at most, which is started when it is needed
/// and ends when it is idle.
final class PluginInstance: PeerSource {
    /// The parts of an instance.
    struct Plan: Sendable {
        /// The path of its program, for errors.
        let path: String
        let program: @Sendable () throws(ProviderError) -> PluginProgram
        let launcher: @Sendable () throws(ProviderError) -> String
        /// The variables that the plugin gets beside the usual ones, by name.
        let variables: [String]
        /// Sent before everything else; nil for an instance that is asked for its description only.
        let configuration: Configure?
        let timeout: Duration
        let processes: PluginProcesses
        let observer: PluginObserver?
        /// Whether this start sends messages that no version of the protocol has.
        let sendsUnknown: @Sendable () -> Bool
        let limit: StartLimit
        /// The time after which a process without requests is ended.
        let idleTime: Duration
    }

    let id: ProviderID
    let timeout: Duration
    /// Starts the plugin and waits for it. Its own requests are answered on other threads.
    let executor = BlockingExecutor.threads()
    private let plan: Plan
    /// Its processes that have not ended.
    private let processes = PluginProcesses()
    private let services: @Sendable (PluginInstance) -> HostServices
    private struct State {
        var process: PluginProcess?
        var peer: Peer?
        var services: HostServices?
        var isShutDown = false
        /// How many starts have come to an end, and the error of the last one.
        var attempts = 0
        var failure: ProviderError?
        /// How many uses have begun, and how many have not ended.
        var uses = 0
        var users = 0
        var pinSources: Set<String> = []
        /// The streams of the plugin's announcements.
        var followers: [UInt64: AsyncStream<Void>.Continuation] = [:]
        var nextFollower: UInt64 = 0
        /// Whether a task starts the process again for them.
        var isKeptRunning = false
    }
    private let state = BlockingMutex(State())
    /// Held by the thread that starts the process.
    private let starting = BlockingMutex<Void>(())

    init(
        _ id: ProviderID, _ plan: Plan, services: @escaping @Sendable (PluginInstance) -> HostServices
    ) {
        (self.id, self.plan, self.timeout) = (id, plan, plan.timeout)
        self.services = services
    }

    func describing(_ error: ProviderError) -> ProviderError {
        var error = error
        if error.code == .unsupportedRequest {
            plan.processes.note(unsupported: error.message)
            error.code = .protocolError
        }
        let name = "The plugin '\(id)'"
        if !error.message.contains(name) { error.message = "\(name): \(error.message)" }
        // Its output is not shown: it may be a secret.
        if !error.message.contains("certprov plugin") {
            if error.code == .protocolError, error.reason != .reported {
                error.message += " Check it: certprov plugin verify \(plan.path.shellQuoted)"
            } else if error.message.contains("did not answer the request") {
                error.message += " Raise 'timeout', or look at its messages with 'certprov plugin trace'."
            }
        }
        error.provider = error.provider ?? id
        return error
    }

    var livePeer: Peer? { state.withLock(\.peer) }

    func beginUse() {
        state.withLock { state in
            state.uses += 1
            state.users += 1
        }
    }

    func endUse() { state.withLock { $0.users -= 1 } }

    // MARK: - Announcements

    /// Returns what the plugin announces. It runs as long as there is a follower, and is started for that.
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

    /// The minimum time between two restarts for followers, so that starts are left for requests.
    private static let restartInterval = Duration.seconds(60)

    /// Starts the process again, until it runs, as long as there are followers.
    private func keepRunning() {
        let isFirst = state.withLock { state in
            defer { state.isKeptRunning = true }
            return !state.isKeptRunning
        }
        guard isFirst else { return }
        Task { [weak self] in
            while await self?.startForFollowers() == true { try? await Task.sleep(for: Self.restartInterval) }
        }
    }

    /// Returns whether it was needed.
    private func startForFollowers() async -> Bool {
        let isNeeded = state.withLock { state in
            state.isKeptRunning = state.peer == nil && !state.followers.isEmpty && !state.isShutDown
            return state.isKeptRunning
        }
        guard isNeeded else { return false }
        do throws(ProviderError) {
            _ = try await executor.run { [self] () throws(ProviderError) in try peer() }
        } catch {}
        return true
    }

    /// The plugin has something new.
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

    func peer() throws(ProviderError) -> Peer {
        if let live = livePeer { return live }
        let attempts = state.withLock { $0.attempts }
        let result = starting.withLock { _ in
            Result { () throws(ProviderError) -> Peer in
                if let live = livePeer { return live }
                // Another thread has tried since: its error is this one's too.
                let failure = state.withLock { $0.attempts == attempts ? nil : $0.failure }
                if let failure { throw failure }
                return try start().0
            }
        }
        return try result.get()
    }

    /// Starts the plugin, and returns its description of itself.
    private func start() throws(ProviderError) -> (Peer, Hello) {
        let result = Result { () throws(ProviderError) in
            // Leases of the former process are free after its end.
            processes.wait()
            let program = try plan.program()
            if state.withLock({ $0.isShutDown }) { throw describing(Self.shutDown) }
            try plan.limit.count()
            return try start(program)
        }
        state.withLock { state in
            state.attempts += 1
            if case .failure(let error) = result { state.failure = error } else { state.failure = nil }
        }
        return try result.get()
    }

    private func start(_ program: PluginProgram) throws(ProviderError) -> (Peer, Hello) {
        do throws(ProviderError) {
            let services = services(self)
            for source in state.withLock({ $0.pinSources }) { services.permit(pinSource: source) }
            let process = try plan.processes.add { () throws(ProviderError) in try launch(program, services) }
            processes.add(process)
            let isShutDown = state.withLock { state in
                state.process = process
                return state.isShutDown
            }
            if isShutDown { process.end(describing(Self.shutDown)) }
            let peer = try process.connect()
            do throws(ProviderError) {
                let hello = try greet(peer)
                if let configuration = plan.configuration {
                    let _: Nothing = try peer.call("configure", configuration, .total(timeout))
                }
                peer.channel.limitConcurrency(to: hello.concurrency ?? 1)
                if hello.shutdown == true { process.willAnswerShutdown() }
                if plan.configuration != nil, plan.sendsUnknown() { try sendUnknown(to: peer) }
                let failure = state.withLock { state -> ProviderError? in
                    if state.isShutDown { return Self.shutDown }
                    // It may have ended just now.
                    guard state.process === process else { return plan.limit.lastFailure ?? Self.shutDown }
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
            plan.limit.note(described)
            throw described
        }
    }

    private static let shutDown = ProviderError(
        .operationNotAllowed, "The provider has been shut down; make a new one.")

    /// Sends a notice and a request that no version of the protocol has, so that plugins stay tolerant. Any answer will do.
    private func sendUnknown(to peer: Peer) throws(ProviderError) {
        let name = "x-unknown-\(UInt16.random(in: 0...UInt16.max))"
        peer.channel.notify(name, Nothing())
        do throws(ProviderError) {
            let _: Nothing = try peer.call(name, Nothing(), .total(timeout))
        } catch {
            guard error.code == .timedOut else { return }
            throw ProviderError(
                .protocolError,
                "It did not answer a request that it does not know within \(timeout.components.seconds) seconds; check it with "
                    + "'certprov plugin verify'.")
        }
    }

    private func launch(
        _ program: PluginProgram, _ services: HostServices
    ) throws(ProviderError) -> PluginProcess {
        try PluginProcess(
            program, launcher: try plan.launcher(), environment: PluginLauncher.environment(with: plan.variables),
            services,
            observer: plan.observer,
            onLoss: { [weak self] process, error in self?.lose(process, error) },
            onEnd: { [processes, all = plan.processes] process in
                processes.remove(process)
                all.remove(process)
            })
    }

    private func greet(_ peer: Peer) throws(ProviderError) -> Hello {
        let hello: Hello = try peer.call(
            "hello", Hello.Request(versions: Hello.versions, host: "certprov"), .total(timeout))
        guard Hello.versions.contains(hello.version) else {
            throw ProviderError(
                .protocolError,
                "It speaks version \(hello.version) of the plugin protocol; this host knows "
                    + Hello.versions.map(String.init).joined(separator: ", ") + ".")
        }
        guard hello.id == id.rawValue else {
            throw ProviderError(
                .protocolError,
                "It calls itself '\(hello.id.withVisibleControls.prefix(64))'; its file must be called "
                    + "\(PluginDirectories.prefix) and that name.")
        }
        return hello
    }

    /// Starts the plugin and ends it again.
    func describe() throws(ProviderError) -> Hello {
        let result = starting.withLock { _ in
            Result { () throws(ProviderError) in try start() }
        }
        end(ProviderError(.operationNotAllowed, "It was started for its description only."))
        return try result.get().1
    }

    /// Notices the end of a process, and ends one that is idle.
    private func watch(_ peer: Peer, _ process: PluginProcess) {
        let uses = state.withLock { $0.uses }
        peer.channel.after(plan.idleTime) { [weak self] in
            guard let self else {
                return process.finish(
                    ProviderError(.operationNotAllowed, "The provider is not used any more."))
            }
            let isIdle = state.withLock { state in
                guard state.uses == uses, state.users == 0, state.followers.isEmpty, peer.channel.isIdle else {
                    return false
                }
                if state.peer === peer { state.peer = nil }
                return true
            }
            guard isIdle else { return watch(peer, process) }
            process.finish(describing(ProviderError(.unavailable, "It was ended, since it was idle.")))
        }
    }

    /// The process answers no more requests. The next use starts another one.
    private func lose(_ process: PluginProcess, _ error: ProviderError) {
        let isLost = state.withLock { state in
            guard state.process === process else { return false }
            (state.process, state.peer, state.services) = (nil, nil, nil)
            // Before another thread sees that there is no process, and starts one.
            plan.limit.note(error)
            return true
        }
        // Nothing is announced: a service would ask for a new certificate after each crash.
        if isLost { keepRunning() }
    }

    /// Ends the process. The next use starts another one.
    func end(_ reason: ProviderError) {
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
        // A thread that was about to start a process.
        do throws(ProviderError) { try await executor.run { [self] in starting.withLock { _ in } } } catch {}
        await processes.end(describing(Self.shutDown))
    }

    deinit {
        state.withLock { $0.process }?.finish(
            ProviderError(.operationNotAllowed, "The provider is not used any more.", provider: id))
    }
}

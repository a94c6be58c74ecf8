package import CertificateProviding
package import CertprovComposition
import CertprovKit
import CoreMetrics
import FoundationEssentials
import Glibc
package import HostSockets
import IdentityFiles
import IdentityStore
package import Logging
import Logon
import NIOCore
import NIOPosix
import PluginHost
import ServiceLifecycle
import Synchronization

/// Keeps the identities of several property files: each by itself, with the plugins, the threads and the store that they share.
package final class HostService: Service {
    private let composition: Composition
    private let read: @Sendable () throws(ProviderError) -> HostConfiguration
    private let socket: ListeningSocket?
    private let readTunnels: ServeSection.Reading
    private let grace: Duration
    private let logger: Logger
    private let sleep: @Sendable (Duration) async throws -> Void
    private let metrics = HostMetrics()
    private let hangups = AsyncStream<Void>.makeStream(bufferingPolicy: .bufferingNewest(1))

    private struct State {
        var configuration: HostConfiguration
        var identities: [(identity: HostedIdentity, task: Task<Void, Never>)] = []
        /// The ends of identities whose property files are gone, by the names.
        var ends: [String: Task<Void, Never>] = [:]
        /// Why the property files were not read again, and why the file of metrics is not written.
        var failures: (reading: ProviderError?, metrics: ProviderError?, sockets: ProviderError?)
        /// The name of the identity that leads to an entry of the store.
        var entries: [String: String] = [:]
        /// The other one of two identities that lead to the same entry, by the name of the second.
        var conflicts: [String: String] = [:]
    }
    private let state: Mutex<State>
    private let pace = UnitPace()
    private let loops = EventLoops()
    /// `nil` for a command with a single identity.
    private let sockets = Mutex<ServiceSockets?>(nil)

    /// The event loops of all tunnels: one for each core, from the first tunnel on.
    private final class EventLoops: Sendable {
        private let made = Mutex<MultiThreadedEventLoopGroup?>(nil)
        var group: MultiThreadedEventLoopGroup {
            made.withLock { made in
                let group = made ?? MultiThreadedEventLoopGroup(numberOfThreads: System.coreCount)
                made = group
                return group
            }
        }
        deinit { made.withLock { $0?.shutdownGracefully { _ in } } }
    }

    /// Reads the property files' places. Nothing runs yet.
    ///
    /// - Parameters:
    ///   - composition: What all identities share. The service ends its plugins.
    ///   - socket: The place of its status. `nil` for a command with a single identity: that fails if the identity or a tunnel of it cannot be
    ///     had, and tries nothing again.
    ///   - grace: The time that open connections have when the service ends.
    ///   - read: Returns the property files; is called again at each ``reread()``.
    /// - Throws: Errors of `read`; the error of the first file if none can be read.
    package init(
        _ composition: Composition, statusAt socket: ListeningSocket?, grace: Duration = .seconds(30), logger: Logger,
        readTunnels: @escaping ServeSection.Reading = ServeSection.read,
        sleep: @escaping @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) },
        read: @escaping @Sendable () throws(ProviderError) -> HostConfiguration
    ) throws(ProviderError) {
        (self.composition, self.socket, self.logger, self.sleep, self.read) = (composition, socket, logger, sleep, read)
        (self.readTunnels, self.grace) = (readTunnels, grace)
        let configuration = try read()
        state = Mutex(State(configuration: configuration))
        // With no identity at all, the start fails: an administrator looks at its result.
        var failures: [ProviderError] = []
        for file in configuration.files {
            do throws(ProviderError) { try check(file) } catch { failures.append(error) }
        }
        if failures.count == configuration.files.count, let first = failures.first { throw first }
        guard socket != nil else { return }
        let new = try ServiceSockets(configuration, logger: logger) { [weak self] in
            self?.served() ?? []
        } named: { [weak self] name in
            self?.served(name) ?? .failure(.init("the service ends"))
        }
        sockets.withLock { $0 = new }
    }

    /// Removes the files of the sockets for other programs. For the end of the process.
    package func removeFiles() { sockets.withLock(\.self)?.removeFiles() }

    private func check(_ file: HostConfiguration.File) throws(ProviderError) {
        if let problem = file.problem { throw problem }
        try HostConfiguration.requireTrusted(file.path)
        _ = try readTunnels(try LogonConfiguration.load(path: file.path, registry: composition.registry))
    }

    /// Reads everything again, soon: the service's own file, and that of each identity. A wrong one leaves the last good state.
    package func reread() { hangups.continuation.yield() }

    /// Keeps the identities until a graceful shutdown, which waits for renewals in progress, or until the task is cancelled.
    ///
    /// - Throws: An error of the status socket; without one, the first error of the identity and its tunnels.
    package func run() async throws {
        noteMissingCapability()
        let sockets = sockets.withLock(\.self)
        try await sockets?.start(on: loops.group)
        start(state.withLock(\.configuration.files))
        try await withThrowingTaskGroup(of: Void.self) { tasks in
            if let socket { tasks.addTask { try await self.answer(at: socket) } }
            tasks.addTask { await self.tell() }
            tasks.addTask { await self.collect() }
            await waitForFirstAttempts()
            if socket == nil, let only = state.withLock(\.identities.first), let error = await only.identity.obstacle {
                only.task.cancel()
                throw error
            }
            ServiceManager.notify("READY=1", await statusLine())
            await withTaskCancellationHandler {
                for await _ in hangups.stream.cancelOnGracefulShutdown() { await takeFiles() }
            } onCancel: {
                for one in state.withLock(\.identities) { one.task.cancel() }
            }
            ServiceManager.notify("STOPPING=1")
            await sockets?.stop()
            await waitForIdentities()
            tasks.cancelAll()
            while let result = await tasks.nextResult() {
                if case .failure(let error) = result, !(error is CancellationError), !Task.isShuttingDownGracefully {
                    throw error
                }
            }
        }
        await composition.plugins.shutdown()
    }

    /// Waits for the ends of all identities, or for a cancellation: an attempt at a server that hangs does not heed one.
    private func waitForIdentities() async {
        let tasks = state.withLock { $0.identities.map(\.task) + $0.ends.values }
        let (ended, end) = AsyncStream<Void>.makeStream()
        Task {
            for task in tasks { await task.value }
            end.finish()
        }
        for await _ in ended {}
        if Task.isCancelled {
            logger.warning("the service ends with an attempt in progress; the next start goes on with it")
        }
    }

    /// Logs whether callers of other users can be looked at.
    private func noteMissingCapability() {
        guard !Capability.trace.isEffective else { return }
        logger.notice(
            "grants by user or group match only callers of this service's own user, since it does not have CAP_SYS_PTRACE"
        )
    }

    // MARK: - Identities

    private func start(_ files: [HostConfiguration.File]) {
        for file in files {
            // Threads of its own: a device that hangs holds those of no other identity.
            let executor = BlockingExecutor.threads(maximum: 8)
            let identity = HostedIdentity(file, logger: logger, pace: pace, read: readTunnels) {
                [self] () async throws(ProviderError) in
                // Not of the executor of the identity: a token that hangs may have all of its threads.
                try await composition.executor.run { [self] () throws(ProviderError) in
                    try HostConfiguration.requireTrusted(file.path)
                    return try readTunnels(
                        try LogonConfiguration.load(path: file.path, registry: composition.registry)
                    ).grants
                }
            } tunnels: { [loops, grace] logon, logger in
                IdentityTunnels(
                    tls: { () throws(ProviderError) in try await logon.tls() }, on: { loops.group }, grace: grace,
                    logger: logger)
            } sleep: { [sleep] time in
                try await sleep(time)
            } make: { [self] () async throws(ProviderError) in
                try await executor.run { [self] () throws(ProviderError) in try logon(of: file, executor) }
            } check: { [self] () throws(ProviderError) in
                if let error = conflict(of: file) { throw error }
            }
            state.withLock { state in
                // The file may have been gone for a while.
                let before = state.ends[file.name]
                let task = Task {
                    await before?.value
                    await identity.run()
                }
                state.identities.append((identity, task))
            }
        }
    }

    private func logon(
        of file: HostConfiguration.File, _ executor: BlockingExecutor
    ) throws(ProviderError) -> CertprovLogon {
        if let problem = file.problem { throw problem }
        var composition = composition
        composition.executor = executor
        forgetEntries(of: file.name)
        return try CertprovLogon(
            configuredBy: file.path, composition, name: file.name, metrics: metrics, sleep: sleep,
            onRead: { [weak self] entry in self?.note(entry, of: file.name) },
            validate: { [weak self, readTunnels, secrets = composition.secrets] configuration throws(ProviderError) in
                try HostConfiguration.requireTrusted(file.path)
                _ = try IdentityExport(configuration.settings, secrets: secrets)
                _ = try readTunnels(configuration)
                self?.state.withLock { $0.conflicts[file.name] = nil }
            },
            accept: { [weak self] () throws(ProviderError) in
                if let error = self?.conflict(of: file) { throw error }
            })
    }

    /// Two identities with one entry of the store would renew each other.
    private func note(_ entry: String, of name: String) {
        state.withLock { state in
            let owner = state.entries[entry] ?? name
            if owner == name { state.entries[entry] = name } else { state.conflicts[name] = owner }
        }
    }

    private func forgetEntries(of name: String) {
        state.withLock { state in
            state.entries = state.entries.filter { $0.value != name }
            // Others that met this one find out at their next attempt: they may be about to begin.
            state.conflicts[name] = nil
        }
    }

    private func conflict(of file: HostConfiguration.File) -> ProviderError? {
        state.withLock { $0.conflicts[file.name] }.map { other in
            ProviderError(
                .configurationInvalid,
                "\(file.path.withVisibleControls): The identity '\(other)' has the same entry in the store; remove one of the two "
                    + "property files, or give one another alias or subject.")
        }
    }

    /// Takes the property files that there are now: new ones begin, those that are gone end, and all others are read again.
    private func takeFiles() async {
        ServiceManager.notify("RELOADING=1", "MONOTONIC_USEC=\(Self.uptime)")
        await changeFiles()
        ServiceManager.notify("READY=1", await statusLine())
    }

    private func changeFiles() async {
        let configuration: HostConfiguration
        do throws(ProviderError) {
            configuration = try await composition.executor.run(read)
            state.withLock { $0.failures.reading = nil }
        } catch {
            state.withLock { $0.failures.reading = error }
            return logger.error(
                "the property files are not read again, the last good state stays",
                metadata: ["code": "\(error.code)", "reason": "\(error)"])
        }
        let change = sockets.withLock(\.self)?.change(to: configuration)
        let present = state.withLock { state in
            state.failures.sockets = change
            state.configuration = configuration
            return state.identities
        }
        func isPresent(_ identity: HostedIdentity) -> Bool {
            configuration.files.contains {
                $0.path == identity.file.path && ($0.problem == nil) == (identity.file.problem == nil)
            }
        }
        for one in present where !isPresent(one.identity) {
            // Its files stay, as they do at the end of the service.
            logger.notice(
                "the property file is gone, its identity ends", metadata: ["identity": "\(one.identity.file.name)"])
            one.task.cancel()
            // An attempt at a server that hangs keeps no other identity waiting.
            let name = one.identity.file.name
            forgetEntries(of: name)
            state.withLock { state in
                let before = state.ends[name]
                state.ends[name] = Task {
                    await before?.value
                    await one.task.value
                    self.forgetEntries(of: name)
                    self.metrics.remove(identity: name)
                }
            }
        }
        let kept = present.filter { isPresent($0.identity) }
        state.withLock { $0.identities = kept }
        // Now: the entries of those that are gone are free.
        for one in kept { one.identity.reread() }
        start(configuration.files.filter { file in !kept.contains { $0.identity.file.path == file.path } })
    }

    /// In microseconds.
    private static var uptime: Int64 {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        return Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1000
    }

    /// The identities that there are now, for callers with a grant, in the order of their names. Does not block.
    func served() -> [ServedIdentity] {
        state.withLock(\.identities).compactMap(\.identity.served).sorted { $0.name < $1.name }
    }

    /// The identity of a name for callers, or why there is none now. Does not block.
    private func served(_ name: String) -> Result<ServedIdentity, Grants.Refusal> {
        guard let one = state.withLock(\.identities).first(where: { $0.identity.file.name == name })?.identity else {
            return .failure(.init("there is no identity '\(name)'"))
        }
        if let served = one.served { return .success(served) }
        return .failure(.init("the identity '\(name)' is not there yet" + (one.failure.map { ": \($0)" } ?? "")))
    }

    // MARK: - Status

    private func identities() async -> [HostStatus.Identity] {
        var all: [HostStatus.Identity] = []
        for one in state.withLock(\.identities) { all.append(await one.identity.status()) }
        return all.sorted { $0.name < $1.name }
    }

    /// The errors of the service that last, and that no identity has.
    private var failures: [ProviderError] {
        let failures = state.withLock(\.failures)
        return [failures.reading, failures.metrics, failures.sockets].compactMap(\.self)
    }

    private func statusLine() async -> String {
        let all = await identities()
        let count = all.count { $0.state == .ready }
        let failing = all.count { !$0.errors.isEmpty }
        return "STATUS=\(count) of \(all.count) identities ready" + (failing == 0 ? "" : ", \(failing) with errors")
            + (failures.isEmpty ? "" : ", and the service has errors")
    }

    /// Gives each identity a short time to be there before programs that wait for the service start. A command has nothing else to do.
    private func waitForFirstAttempts() async {
        let end = socket == nil ? nil : ContinuousClock.now + .seconds(5)
        while state.withLock(\.identities).contains(where: \.identity.isBeginning), end.map({ .now < $0 }) ?? true {
            do { try await Task.sleep(for: .milliseconds(50)) } catch { return }
        }
    }

    private static let interval = Duration.seconds(15)

    /// Tells the service manager, from time to time, that the service lives, and how it is.
    private func tell() async {
        let watchdog = ServiceManager.watchdog
        while !Task.isCancelled {
            let status = await statusLine()
            if watchdog == nil { ServiceManager.notify(status) } else { ServiceManager.notify("WATCHDOG=1", status) }
            let interval = min(watchdog.map { $0 / 3 } ?? Self.interval, Self.interval)
            do { try await Task.sleep(for: interval) } catch { return }
        }
    }

    /// Writes the file of metrics, from time to time.
    private func collect() async {
        while !Task.isCancelled {
            do throws(ProviderError) {
                try await writeMetrics()
                state.withLock { $0.failures.metrics = nil }
            } catch {
                let last = state.withLock { state in
                    defer { state.failures.metrics = error }
                    return state.failures.metrics
                }
                if last?.message != error.message {
                    logger.error("the file of metrics is not written", metadata: ["reason": "\(error)"])
                }
            }
            do { try await Task.sleep(for: Self.interval) } catch { return }
        }
    }

    private func writeMetrics() async throws(ProviderError) {
        guard let path = state.withLock(\.configuration.metricsFile), let end = path.lastIndex(of: "/"),
            let file = PublishedFile(path: path)
        else { return }
        let text = await metricsText()
        try await composition.executor.run { () throws(ProviderError) in
            try file.write(Array(text.utf8), below: String(path[..<end]))
        }
    }

    private func metricsText() async -> String {
        for identity in await identities() {
            Gauge(label: "certprov_identity_ready", factory: metrics.of(identity: identity.name))
                .record(identity.state == .ready ? 1 : 0)
            Gauge(label: "certprov_identity_errors", factory: metrics.of(identity: identity.name))
                .record(identity.errors.count)
        }
        return metrics.text
    }

    /// `nil` for a process that there is not.
    private func explanation(of process: pid_t) -> HostStatus.Explanation? {
        guard let caller = Caller(process: process) else { return nil }
        let hasCredentials = sockets.withLock(\.self)?.credentials != nil
        let identities = state.withLock(\.identities).map { one in
            HostStatus.Explanation.Identity(
                name: one.identity.file.name,
                grants: one.identity.served?.grants.grants.map { grant in
                    .init(
                        name: grant.name, text: grant.text, mismatches: grant.mismatches(caller),
                        credentials: hasCredentials ? grant.mismatchesForCredentials(caller) : nil)
                } ?? [])
        }
        return .init(caller: "\(caller)", identities: identities.sorted { $0.name < $1.name })
    }

    /// Answers the questions at the status socket.
    private func answer(at socket: ListeningSocket) async throws {
        var limits = RequestListener.Limits(largest: 64)
        limits.admitsRoot = true
        let listener = RequestListener(socket, limits, logger: logger) { [self] question, _, _ in
            func json(_ value: some Encodable) -> String {
                (try? JSONEncoder().encode(value)).map { String(decoding: $0, as: UTF8.self) } ?? ""
            }
            switch StatusSocket.Question(String(decoding: question, as: UTF8.self)) {
            case .status:
                return json(
                    HostStatus(
                        process: getpid(), identities: await identities(),
                        sockets: sockets.withLock(\.self)?.status ?? [],
                        errors: failures.map(HostStatus.Failure.init)))
            case .metrics: return await metricsText()
            case .explain(let process): return json(explanation(of: process))
            case nil: return ""
            }
        }
        try await listener.run()
    }
}

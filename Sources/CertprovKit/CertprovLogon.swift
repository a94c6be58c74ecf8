// One import is the purpose of this product. The attribute is the only way to pass on what the types here are made of;
// CertprovKitTests compile a service with this import alone.
@_exported public import CertificateProviding
@_exported public import CertificateTLS
package import CertprovComposition
package import CoreMetrics
package import FoundationEssentials
@_exported public import IdentityStore
public import Logging
@_exported public import Logon
import PluginHost
package import ProviderTransport
@_exported public import Renewal
public import ServiceLifecycle
import Synchronization

/// A service's identity for mutual TLS, from a property file to TLS that rotates.
///
///     let logon = try CertprovLogon(configuredBy: "clienthub.properties")
///     let server = try await logon.tls().server()
///     // … server.addHandlers(to: channel) for each connection, and logon.renewal among the services of the program.
///
/// ``reload()`` reads the property file again, and ``reloading(every:)`` does so when the file changes. ``tls()`` stays the same object.
///
/// It has all built-in providers and key stores, those that the service adds, the plugins of this host, and its identity store. Make
/// ``/Logon/LogonManager``, ``/CertificateTLS/RotatingTLS`` and ``/Renewal/RenewingIdentity`` by hand to choose among them.
public final class CertprovLogon: Sendable {
    /// The manager of the configuration in force. After a ``reload()`` it is another one, so ask for it at each use: an earlier one
    /// goes on with the configuration that it was made with.
    public var manager: LogonManager { current.manager }
    private let current: CurrentManager
    private let path: String
    private let composition: Composition
    private var logger: Logger { composition.logger }
    private var now: @Sendable () -> Date { composition.now }
    private let sleep: @Sendable (Duration) async throws -> Void
    private let looking: (@Sendable (Duration) async throws -> Void)?
    private let metrics: any MetricsFactory
    /// The name of the identity in metrics and in the log: the label `identity`.
    public let name: String
    /// Whether other objects use the composition too: then its plugins do not end with this one.
    private let isShared: Bool
    private let onRead: (@Sendable (String) -> Void)?
    private let validate: Validation
    private let accept: @Sendable () throws(ProviderError) -> Void
    /// How the file was when it was read for ``manager``.
    private let stamp: Mutex<FileStamp?>

    private struct State {
        var starting: Task<Result<Started, ProviderError>, Never>?
        var started: Started?
        var tls: RotatingTLS?
        /// Gets an element when there is another configuration.
        var change: AsyncStream<Void>.Continuation?
        /// Managers whose providers may still be needed for handshakes.
        var replaced: [UInt64: LogonManager] = [:]
        var lastReplaced: UInt64 = 0
        var isEnded = false
    }
    private let state = Mutex(State())

    private struct Started: Sendable {
        let credentials: RotatingCredentials
        let renewal: RenewingIdentity
    }

    /// Apart from the rest, for the renewal: it is held by what this object holds.
    private final class CurrentManager: Sendable {
        private let state: Mutex<LogonManager>
        init(_ manager: LogonManager) { state = Mutex(manager) }
        var manager: LogonManager { state.withLock(\.self) }
        func replace(by manager: LogonManager) { state.withLock { $0 = manager } }
    }

    /// The time between two looks at the files of trust anchors and revocation lists. A change is read at the second one.
    package static let trustInterval = Duration.seconds(3)

    /// How long a provider that was replaced stays open, for handshakes that already have its key.
    package static let gracePeriod = Duration.seconds(60)

    /// Reads the property file. Blocks on the file system; neither a server nor a token is contacted.
    ///
    /// - Parameters:
    ///   - path: A `.properties` file or a property list.
    ///   - providers: Further providers that the file may name, besides the built-in ones.
    ///   - keyStores: Further key stores, whose URIs parameters may have.
    ///   - sections: Settings of the program itself, whose values ``/Logon/LogonConfiguration/settings`` has then.
    ///   - name: The name of the identity in metrics and in the log; by default that of the file, without its suffix.
    ///   - logger: Gets warnings about the file, and the results of renewals.
    /// - Throws: `configurationMissing`, `configurationInvalid`, which names the line, and errors of this host's store.
    public convenience init(
        configuredBy path: String, adding providers: [ProviderDescriptor] = [], keyStores: [KeyStoreDescriptor] = [],
        sections: [SettingsSection] = [], name: String? = nil, logger: Logger = Logger(label: "certprov")
    ) throws(ProviderError) {
        try self.init(
            configuredBy: path, adding: providers, keyStores: keyStores, sections: sections, name: name, logger: logger,
            secrets: SecretReader(), store: nil, vaults: nil)
    }

    package convenience init(
        configuredBy path: String, adding providers: [ProviderDescriptor] = [], keyStores: [KeyStoreDescriptor] = [],
        sections: [SettingsSection] = [], name: String? = nil, logger: Logger, secrets: SecretReader,
        store: IdentityStore?,
        now: @escaping @Sendable () -> Date = { Date() },
        sleep: @escaping @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) },
        looking: (@Sendable (Duration) async throws -> Void)? = nil, transport: Transport = Transport(),
        vaults: Composition.Vaults?
    ) throws(ProviderError) {
        var builtIns = BuiltIns.all
        builtIns.providers += providers
        builtIns.keyStores += keyStores
        builtIns.sections += sections
        let composition = try Composition(
            builtIns, secrets: secrets, store: store, vaults: vaults, executor: .threads(), transport: transport,
            logger: logger, now: now, sleep: looking)
        try self.init(configuredBy: path, composition, isShared: false, name: name, sleep: sleep, looking: looking)
    }

    /// Refuses a configuration that the program cannot use, before it is in force.
    package typealias Validation = @Sendable (LogonConfiguration) throws(ProviderError) -> Void

    /// Reads the property file, for one of several identities of a process.
    ///
    /// - Parameters:
    ///   - composition: What the identities of the process share: plugins, threads, store, clock.
    ///   - isShared: Whether its plugins stay when this identity ends.
    ///   - name: As of the public initializer.
    ///   - onRead: Gets the path of each entry of the store, outside of the vault, that the providers ask for.
    ///   - validate: Is asked about each configuration that is read, the first one and those of ``reload()``.
    ///   - accept: Is asked by ``reload()`` when the providers of the new configuration have been asked for an identity.
    package init(
        configuredBy path: String, _ composition: Composition, isShared: Bool = true,
        name: String? = nil, metrics: any MetricsFactory = MetricsSystem.factory,
        sleep: @escaping @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) },
        looking: (@Sendable (Duration) async throws -> Void)? = nil, onRead: (@Sendable (String) -> Void)? = nil,
        validate: @escaping Validation = { _ in },
        accept: @escaping @Sendable () throws(ProviderError) -> Void = {}
    ) throws(ProviderError) {
        let name = name ?? Self.name(of: path)
        var composition = composition
        composition.logger[metadataKey: "identity"] = "\(name)"
        (self.name, self.metrics) = (name, LabelledMetrics(metrics, identity: name))
        (self.composition, self.isShared) = (composition, isShared)
        (self.onRead, self.validate, self.accept) = (onRead, validate, accept)
        let stamp = FileStamp(of: path)
        let configuration = try LogonConfiguration.load(path: path, registry: composition.registry)
        try validate(configuration)
        for warning in configuration.warnings { composition.logger.warning("\(warning)") }
        current = CurrentManager(try composition.manager(configuration, onRead: onRead).manager)
        (self.path, self.sleep, self.looking) = (path, sleep, looking)
        self.stamp = Mutex(stamp)
    }

    private static func name(of path: String) -> String {
        let file = path.split(separator: "/").last ?? path[...]
        let suffix = [".properties", ".plist"].first { file.hasSuffix($0) && file.count > $0.count }
        return String(file.dropLast(suffix?.count ?? 0))
    }

    /// The built-in providers.
    public static var providers: [ProviderDescriptor] { BuiltIns.all.providers }

    /// The built-in key stores.
    public static var keyStores: [KeyStoreDescriptor] { BuiltIns.all.keyStores }

    /// Returns a manager of providers that the program configures itself, beside those of the property file: with the same registry,
    /// key stores and store. Reads and starts nothing. Shut it down before the program ends.
    ///
    /// - Throws: `configurationInvalid` for a provider that is not installed, and its errors about its parameters; errors of this
    ///   host's store.
    public func manager(of providers: [ConfiguredProvider]) throws(ProviderError) -> LogonManager {
        var configuration = manager.configuration
        configuration.providers = providers
        configuration.userCreationPolicy = .certificate
        // The registration is with the providers of the property file.
        configuration.registration = RegistrationSettings()
        return try composition.manager(configuration).manager
    }

    /// The peers that the property file says to trust, by `TrustAnchors` and `Peers`. ``tls()`` follows it. Without `TrustAnchors`, it is
    /// the system trust store, which a server that demands client certificates refuses.
    public var trust: PeerTrust { Self.trust(of: manager) }

    private static func trust(of manager: LogonManager) -> PeerTrust {
        PeerTrust(trustAnchors: manager.configuration.trustAnchors, manager.configuration.settings)
    }

    /// Returns TLS with the stored identity, and with the trust and the peers of the property file. It obtains another identity if none is
    /// stored, or the stored one cannot be used with TLS, or has expired: then only the provider that it is from is asked. Later calls
    /// return the same object, in which all of these change: the identity when it is renewed, the trust anchors and revocation lists
    /// within ten seconds after their files, the rest by ``reload()``. ``renewal`` renews the identity, and looks at the files.
    ///
    /// Prompts for nothing.
    ///
    /// - Throws: Errors of the provider, such as `interactionRequired` where a PIN has no source; `unsupportedAlgorithm` for an identity
    ///   that TLS cannot use; `expired` if there is only one that is over: a service that runs keeps such an identity;
    ///   `fileNotFound`, `configurationInvalid` and `malformedData` for the files.
    public func tls() async throws(ProviderError) -> RotatingTLS {
        let credentials = try await credentials()
        while true {
            if let tls = state.withLock(\.tls) { return tls }
            let manager = manager
            let new = try await RotatingTLS(
                credentials, trusting: Self.trust(of: manager), logger: logger, metrics: metrics, now: now,
                executor: composition.executor)
            let tls = state.withLock { state in
                // The file may have been read again since.
                if state.tls == nil, current.manager === manager { state.tls = new }
                return state.tls
            }
            if let tls { return tls }
        }
    }

    /// The identity of ``tls()``, before any file of trust anchors is read.
    package func credentials() async throws(ProviderError) -> RotatingCredentials {
        try await start().credentials
    }

    /// The service that renews the identity in time, and shuts the provider down at its end. List it before the services
    /// that use the identity: a service group ends its services in reverse order.
    public var renewal: some Service { Renewal(logon: self) }

    /// Returns the object behind ``renewal``: the current identity, its updates, and a renewal on demand.
    ///
    /// - Throws: As ``tls()``, but for the files.
    public func renewingIdentity() async throws(ProviderError) -> RenewingIdentity {
        try await start().renewal
    }

    private var filesWriter: FilesWriter {
        FilesWriter(
            manager: { [current] in current.manager }, secrets: composition.secrets, executor: composition.executor,
            logger: logger, sleep: sleep, metrics: metrics,
            report: { [filesFailure] error in filesFailure.withLock { $0 = error } })
    }

    private let filesFailure = BlockingMutex<ProviderError?>(nil)

    /// The errors that last: that of the last renewal, and that of the files for other programs.
    package var failures: [ProviderError] {
        [state.withLock { $0.started }?.renewal.failure, filesFailure.withLock(\.self)].compactMap(\.self)
    }

    private struct Renewal: Service {
        let logon: CertprovLogon
        func run() async throws {
            let renewal = try await logon.start().renewal
            let writer = logon.filesWriter
            logon.state.withLock { $0.change = writer.changes.continuation }
            // The end does not wait for it: a program that is notified may take two minutes. The next start notifies it again.
            let files = Task { await writer.run(renewal) }
            defer { files.cancel() }
            await withTaskGroup(of: Void.self) { tasks in
                tasks.addTask { await logon.watchTrust() }
                await renewal.run()
                tasks.cancelAll()
            }
        }
    }

    private func watchTrust() async {
        while !Task.isCancelled {
            do { try await sleep(Self.trustInterval) } catch { return }
            await state.withLock(\.tls)?.look()
        }
    }

    /// One start for all callers, since a manager does one thing at a time.
    private func start() async throws(ProviderError) -> Started {
        let task = state.withLock { state in
            if let starting = state.starting { return starting }
            let new = Task { await Result { () async throws(ProviderError) in try await begin() } }
            state.starting = new
            return new
        }
        let result = await task.value
        // The next call tries again.
        if case .failure = result { state.withLock { $0.starting = $0.starting == task ? nil : $0.starting } }
        return try result.get()
    }

    private func begin() async throws(ProviderError) -> Started {
        while true {
            let manager = manager
            let first = try await firstCredentials(of: manager)
            let credentials = RotatingCredentials(first)
            var environment = RenewalEnvironment(metrics: metrics, logger: logger)
            environment.now = now
            if let looking { environment.look = looking }
            let started = Started(
                credentials: credentials,
                renewal: RenewingIdentity(
                    first.identity, managedBy: { [current] in current.manager }, environment: environment,
                    install: credentials.update(to:)
                ) { [weak self, current] in
                    guard let self else { return await current.manager.shutdown() }
                    await end()
                })
            let isDone = state.withLock { state in
                // The file may have been read again since.
                guard current.manager === manager else { return false }
                state.started = started
                return true
            }
            guard isDone else { continue }
            if let obstacle = first.identity.obstacle(at: now()) {
                logger.warning("peers refuse the certificate of the identity", metadata: ["reason": "\(obstacle)"])
            }
            return started
        }
    }

    private func firstCredentials(
        of manager: LogonManager
    ) async throws(ProviderError) -> TLSCredentials {
        let stored = try await manager.storedIdentity()
        if let stored, usable(stored) != nil {
            let refreshed = try await manager.refreshed(stored, NoUserInteraction())
            if let credentials = usable(refreshed) { return credentials }
        }
        // The manager would return a stored one that TLS cannot use.
        let identity =
            if let stored, !stored.hasExpired(at: now()) {
                try await manager.obtainIdentity(NoUserInteraction())
            } else {
                try await manager.identity(NoUserInteraction())
            }
        // A peer would refuse it, and nothing here would tell.
        try identity.requireUnexpired(at: now())
        return try TLSCredentials(identity)
    }

    private func usable(_ stored: Identity) -> TLSCredentials? {
        guard !stored.hasExpired(at: now()) else { return nil }
        do throws(ProviderError) { return try TLSCredentials(stored) } catch {
            logger.warning(
                "the stored identity is not used", metadata: ["code": "\(error.code)", "reason": "\(error)"])
            return nil
        }
    }

    private func end() async {
        let replaced = state.withLock { state in
            defer { state.replaced = [:] }
            state.isEnded = true
            return Array(state.replaced.values)
        }
        for manager in replaced + [manager] { await manager.shutdown() }
        // The process of a plugin's key stores is that of all who use them.
        if !isShared { await composition.plugins.shutdown() }
    }
}

// MARK: - Reloading

extension CertprovLogon {
    /// Reads the property file again, such as at SIGHUP.
    ///
    /// If anything is wrong, nothing changes: the old configuration stays in force. Otherwise the new one holds for every later
    /// operation of ``manager``, and operations in progress end with the old one. Providers with the same parameters are not
    /// made again. If other providers count now, or the parameters of one have changed, ``tls()`` first gets the stored
    /// identity of the new configuration, or a new one if none is stored. A provider that was replaced is shut down a minute
    /// later, when its last operation has ended.
    ///
    /// `ApplicationId` and the passcode policy (`Passcode.min-length` to `Passcode.unique`, `expires-days`, `max-attempts`,
    /// `default-allowed`) cannot change. While the application is registered, neither can `UserCreationPolicy`, the provider
    /// that registered, `Host`, `Port`, `HTTPS`, `URLSuffix` and `FarmID`.
    ///
    /// May be called from any thread; prompts for nothing. Suspends for as long as a new identity takes.
    ///
    /// - Returns: Whether any setting has changed.
    /// - Throws: `configurationMissing`; `configurationInvalid`, with file and line, also for a setting that cannot change;
    ///   `operationNotAllowed` while another operation of the manager is in progress; `vaultLocked` if the vault has to be
    ///   asked what may change; errors of a provider that is made, or asked for an identity.
    @discardableResult
    public func reload() async throws(ProviderError) -> Bool { try await reload(expecting: nil) }

    /// A service that looks at the property file at an interval, and reloads it when it has changed (``reload()``).
    ///
    /// A file is read when two looks in a row see the same new modification time, size and inode, since an editor may write
    /// it in parts. After an error the configuration in force stays, and the next looks try again, at growing intervals. The
    /// error is logged once, until it is another one. While an operation of the manager is in progress, such as a renewal, each look
    /// tries again.
    ///
    /// - Parameter interval: The time between two looks. By default, a change is in force within ten seconds.
    public func reloading(every interval: Duration = .seconds(3)) -> some Service {
        Reloading(logon: self, interval: interval)
    }

    private struct Reloading: Service {
        let logon: CertprovLogon
        let interval: Duration

        func run() async throws {
            var watch = FileWatch<FileStamp?>()
            while !Task.isShuttingDownGracefully, !Task.isCancelled {
                await cancelWhenGracefulShutdown { [sleep = logon.sleep, interval] in try? await sleep(interval) }
                if Task.isShuttingDownGracefully || Task.isCancelled { return }
                await logon.look(&watch)
            }
        }
    }

    /// One look at the file.
    private func look(_ watch: inout FileWatch<FileStamp?>) async {
        let seen = FileStamp(of: path)
        guard watch.isDue(seen, inForce: stamp.withLock(\.self)) else { return }
        do throws(ProviderError) {
            if try await reload(expecting: .some(seen)) { logger.notice("the property file was reloaded") }
            watch.succeeded()
        } catch {
            guard error.reason != .busy, watch.failed(error) else { return }
            logger.error(
                "the property file was not reloaded, the configuration in force stays",
                metadata: ["code": "\(error.code)", "reason": "\(error)"])
        }
    }

    /// - Parameter expected: How the file was when it was looked at; `nil` to read it however it is.
    private func reload(expecting expected: FileStamp??) async throws(ProviderError) -> Bool {
        let old = manager
        let read = BlockingMutex<FileStamp?>(nil)
        let new = try await old.replacement {
            [path, registry = composition.registry, read, validate] () throws(ProviderError) in
            let before = FileStamp(of: path)
            let configuration = try LogonConfiguration.load(path: path, registry: registry)
            try validate(configuration)
            guard before == FileStamp(of: path), expected == nil || expected == .some(before) else {
                throw ProviderError(
                    .configurationInvalid,
                    "\(path.withVisibleControls): The file is being changed; reload it when that is done.",
                    reason: .busy)
            }
            read.withLock { $0 = before }
            return configuration
        } install: { new throws(ProviderError) in
            guard manager === old else { throw Self.isReloading }
            try await install(new, insteadOf: old)
        }
        stamp.withLock { $0 = read.withLock(\.self) }
        guard let new else { return false }
        for warning in new.configuration.warnings { logger.warning("\(warning)") }
        keepForHandshakes(old)
        _ = state.withLock(\.change)?.yield()
        state.withLock(\.started)?.renewal.planAnew()
        return true
    }

    private static let isReloading = ProviderError(
        .operationNotAllowed, "The property file has just been reloaded; reload it again.", reason: .busy)

    /// Takes the identity of the new manager, and then the manager.
    private func install(
        _ new: LogonManager, insteadOf old: LogonManager
    ) async throws(ProviderError) {
        while true {
            let started = state.withLock(\.started)
            guard let started, !new.hasSameProviders(as: old) else {
                // The first credentials, or TLS, may have been made since.
                let trust = try await readTrust(of: new, for: started?.credentials.current.identity)
                if try swap(to: new, trust, if: { $0.started == nil || started != nil }) { return }
                continue
            }
            let identity = try await new.firstIdentity(NoUserInteraction()) { usable($0) != nil }
            try accept()
            let trust = try await readTrust(of: new, for: identity)
            let isSameProvider = new.hasSameProvider(of: identity, as: old)
            if isSameProvider, identity.isSame(as: started.renewal.current) {
                guard try swap(to: new, trust) else { continue }
            } else {
                try await started.renewal.adopt(identity, isOfSameProvider: isSameProvider) {
                    [self] identity throws(ProviderError) in
                    try await started.credentials.update(to: identity)
                    guard try swap(to: new, trust) else { throw Self.isReloading }
                }
            }
            return
        }
    }

    /// Reads what the new configuration says to trust; `nil` if there is no TLS that follows it.
    private func readTrust(
        of new: LogonManager, for identity: Identity?
    ) async throws(ProviderError) -> RotatingTLS.Content? {
        guard let tls = state.withLock(\.tls), let identity else { return nil }
        return try await tls.read(Self.trust(of: new), for: identity)
    }

    private func swap(
        to new: LogonManager, _ trust: RotatingTLS.Content?, if condition: (State) -> Bool = { _ in true }
    ) throws(ProviderError) -> Bool {
        let (isEnded, isDone) = state.withLock { state in
            guard !state.isEnded, condition(state), (state.tls == nil) == (trust == nil) else {
                return (state.isEnded, false)
            }
            current.replace(by: new)
            if let trust { state.tls?.install(trust) }
            return (false, true)
        }
        if isEnded {
            throw ProviderError(
                .operationNotAllowed, "The program ends, so that the property file is not reloaded; start it again.")
        }
        return isDone
    }

    private func keepForHandshakes(_ old: LogonManager) {
        // An object that leaves the dictionary ends outside of the lock, and shuts providers down.
        let (number, oldest) = state.withLock { state -> (UInt64, LogonManager?) in
            state.lastReplaced += 1
            state.replaced[state.lastReplaced] = old
            // A file that changes all the time must not fill the memory.
            return (state.lastReplaced, state.replaced.removeValue(forKey: state.lastReplaced &- 16))
        }
        _ = oldest
        Task { [weak self, sleep] in
            try? await sleep(Self.gracePeriod)
            _ = self?.state.withLock { $0.replaced.removeValue(forKey: number) }
        }
    }
}

extension Result {
    /// The outcome of `body`.
    fileprivate init(_ body: () async throws(Failure) -> Success) async {
        do throws(Failure) { self = .success(try await body()) } catch { self = .failure(error) }
    }
}

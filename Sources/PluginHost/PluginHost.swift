public import CertificateProviding
import FoundationEssentials
public import Logging
import PluginProtocol

/// The plugins of this host: executables that are providers, key stores or both, in any language.
///
/// A registry takes the descriptors of those that it is to have. A plugin is started for its description, which is cached
/// under the digest of its executable, and when a configured provider or key store of it is used. Errors name the plugin.
public final class PluginHost: ProviderSource {
    private let directories: PluginDirectories
    private let builtIn: Set<ProviderID>
    private let builtInSchemes: Set<String>
    private let logger: Logger
    private let launcher: String?
    private let cache: DescriptionCache
    private let processes: PluginProcesses
    private let observer: PluginObserver?
    /// Whether a plugin that is started gets messages that it does not know.
    private let sendsUnknown: @Sendable () -> Bool
    /// The time after which an unused plugin is ended.
    private let idleTime: Duration

    /// Creates the host. Reads and starts nothing.
    ///
    /// - Parameters:
    ///   - directories: Where plugins are installed.
    ///   - launcher: The path of `certprov-plugin-launcher`; `nil` for where it is installed.
    public convenience init(
        _ directories: PluginDirectories = .standard, launcher: String? = nil, logger: Logger
    ) {
        self.init(directories, builtIn: [], launcher: launcher, logger: logger)
    }

    /// - Parameters:
    ///   - builtIn: The providers of the program, whose names plugins must not have.
    ///   - builtInKeyStores: The key stores of the program. Plugins must not have their schemes, nor the names of their parts of
    ///     the identity store.
    ///   - reservedSchemes: Further URI schemes that plugins must not have.
    ///   - cache: Returns where descriptions of plugins are stored: a part of the identity store that is used for nothing
    ///     else. Without it, or where it throws, each program starts a plugin to learn of its parameters.
    ///   - observer: Gets what plugins and this host say to each other. Called on the threads of connections, which it must not
    ///     block.
    package convenience init(
        _ directories: PluginDirectories = .standard, builtIn: [ProviderDescriptor],
        builtInKeyStores: [KeyStoreDescriptor] = [], reservedSchemes: Set<String> = ["pkcs11", "store"],
        launcher: String? = nil, logger: Logger,
        cache: (@Sendable () throws(ProviderError) -> any IdentityStorage)? = nil,
        observer: (@Sendable (PluginEvent) -> Void)? = nil
    ) {
        self.init(
            directories, Set(builtIn.map(\.id) + builtInKeyStores.map(\.id)),
            reservedSchemes.union(builtInKeyStores.map(\.scheme)), launcher,
            logger, DescriptionCache(cache), PluginProcesses(), observer, { Int.random(in: 0..<16) == 0 },
            idleTime: .seconds(60))
    }

    /// Returns a host that sends unknown messages at each start, or at none.
    package func sendingUnknownMessages(_ sends: Bool) -> PluginHost {
        PluginHost(
            directories, builtIn, builtInSchemes, launcher, logger, cache, processes, observer, { sends },
            idleTime: idleTime)
    }

    /// Returns a host that ends plugins which were not used for this time.
    package func endingPlugins(idleFor idleTime: Duration) -> PluginHost {
        PluginHost(
            directories, builtIn, builtInSchemes, launcher, logger, cache, processes, observer, sendsUnknown,
            idleTime: idleTime)
    }

    private init(
        _ directories: PluginDirectories, _ builtIn: Set<ProviderID>, _ builtInSchemes: Set<String>,
        _ launcher: String?,
        _ logger: Logger, _ cache: DescriptionCache, _ processes: PluginProcesses,
        _ observer: PluginObserver?, _ sendsUnknown: @escaping @Sendable () -> Bool,
        idleTime: Duration
    ) {
        (self.directories, self.builtIn, self.builtInSchemes) = (directories, builtIn, builtInSchemes)
        (self.launcher, self.logger, self.cache) = (launcher, logger, cache)
        (self.processes, self.observer, self.sendsUnknown) = (processes, observer, sendsUnknown)
        self.idleTime = idleTime
    }

    /// Returns a host that looks into `directory` first. It must be an absolute path. Its plugins are ended by either host.
    package func searching(_ directory: String) -> PluginHost {
        PluginHost(
            PluginDirectories([directory] + directories.paths), builtIn, builtInSchemes,
            launcher, logger, cache, processes, observer, sendsUnknown, idleTime: idleTime)
    }

    package func looking(in directory: String) -> any ProviderSource { searching(directory) }

    /// Ends all plugins, and waits for that: a few seconds at most, even if one hangs. Afterwards they are started again when
    /// they are used. Call it before the program ends, so that plugins can end in order.
    public func shutdown() async {
        await processes.end(
            ProviderError(.operationNotAllowed, "The plugin was ended, since the program ends."))
    }

    /// Ends all plugins at once, and everything that they have started, for a program that ends and has waited long enough for
    /// ``shutdown()``.
    package func kill() { processes.kill() }

    /// Starts no more plugins, for a program that ends.
    ///
    /// - Returns: Whether one runs.
    package func close() -> Bool { processes.close() }

    /// A request that a plugin did not answer, nor its cancellation, so that it was ended; `nil` if there was none.
    package var ignoredCancellation: String? { processes.ignoredCancellation }

    /// The message to a plugin that chooses another name in the store.
    package static let nameRefusal =
        "A name in the store has 1 to 95 bytes, contains no '/' and no '@', and does not begin with a dot."

    /// Returns a message on a request that a plugin does not support, once; `nil` if there was none. Not every caller throws it.
    package func takeUnsupported() -> String? { processes.takeUnsupported() }

    /// The plugins in the directories, in alphabetical order, with those that are refused. Starts nothing; blocks on the file
    /// system.
    package var installed: [InstalledPlugin] { directories.scan(builtIn: builtIn) }

    package var whereabouts: String { directories.whereabouts }

    /// Files in the directories whose names cannot be those of plugins, with the reason. Blocks on the file system.
    package var misnamed: [(path: String, reason: String)] { directories.misnamed }

    package var providerIDs: [ProviderID] { installed.filter { $0.refusal == nil }.map(\.id) }

    public func provider(
        _ id: ProviderID, _ configured: ProviderParameters
    ) throws(ProviderError) -> ProviderDescriptor? {
        guard let plugin = try usable(id) else { return nil }
        let options = try PluginOptions(configured, of: plugin)
        guard let provider = try description(plugin, options).provider else { return nil }
        let declared = try provider.parameters.map { parameter throws(ProviderError) in
            try DeclaredParameter(parameter, of: plugin)
        }
        return ProviderDescriptor(
            id: id, displayName: provider.displayName, summary: provider.summary,
            parameters: declared.map(\.descriptor) + PluginOptions.descriptors(beside: declared)
        ) { [self] environment, parameters throws(ProviderError) in
            let options = try PluginOptions(parameters, declared, of: plugin)
            var stores: [String: any KeyStore] = [:]
            for parameter in declared {
                if let (uri, store) = parameter.keyStore(parameters) { stores[uri] = store }
            }
            let (texts, sources) = (declared.texts(parameters), declared.sources(parameters))
            var environment = environment
            environment.storage = ConfigurationStorage(
                environment.storage, distinguishedBy: declared.distinguishingValues(parameters))
            let usable = UsableKeyStores(
                stores, in: environment.keyStores, texts: Set(texts.values), sources: sources)
            let instance = self.instance(
                plugin, options, environment, scheme: nil, texts: texts, sources: sources,
                stores: usable)
            return PluginProvider(instance, provider, stores: usable, logger: environment.logger)
        }
    }

    public func keyStore(
        _ scheme: String, _ configured: ProviderParameters
    ) throws(ProviderError) -> KeyStoreDescriptor? {
        // The name tells whose it is: no other plugin is started.
        let owner = installed.map(\.id).filter { $0.mayHave(scheme: scheme) }.max {
            $0.rawValue.count < $1.rawValue.count
        }
        guard let owner, let plugin = try usable(owner) else { return nil }
        let stores = try description(plugin, try PluginOptions(configured, of: plugin)).keyStores
        return try stores.first { $0.scheme == scheme }.map { store throws(ProviderError) in
            try descriptor(plugin, store)
        }
    }

    private func descriptor(
        _ plugin: InstalledPlugin, _ store: PluginDescription.KeyStore
    ) throws(ProviderError) -> KeyStoreDescriptor {
        let declared = try store.parameters.map { parameter throws(ProviderError) in
            try DeclaredParameter(parameter, of: plugin)
        }
        // One process for all places of the store.
        let instances = BlockingMutex<[[String: String]: PluginInstance]>([:])
        return KeyStoreDescriptor(
            scheme: store.scheme, id: plugin.id, displayName: store.displayName, summary: store.summary,
            parameters: declared.map(\.descriptor) + PluginOptions.descriptors(beside: declared)
        ) { [self] environment, location, parameters throws(ProviderError) in
            let options = try PluginOptions(parameters, declared, of: plugin)
            let texts = declared.texts(parameters)
            let instance = instances.withLock { instances in
                if let known = instances[texts] { return known }
                let sources = declared.sources(parameters)
                let new = self.instance(
                    plugin, options, environment, scheme: store.scheme, texts: texts, sources: sources,
                    stores: UsableKeyStores(
                        [:], in: environment.keyStores, texts: Set(texts.values), sources: sources))
                instances[texts] = new
                return new
            }
            if let source = location.pinSource { instance.permit(pinSource: source) }
            return RemoteKeyStore(location, store.details, source: PluginStoreSource(instance))
        }
    }

    private func instance(
        _ plugin: InstalledPlugin, _ options: PluginOptions, _ environment: ProviderEnvironment, scheme: String?,
        texts: [String: String], sources: Set<String>, stores: UsableKeyStores
    ) -> PluginInstance {
        PluginInstance(
            plugin.id,
            plan(
                plugin, options,
                Configure(scheme: scheme, parameters: texts, timeout: options.timeout / .seconds(1)),
                StartLimit(plugin.id))
        ) { instance in
            HostServices(plugin.id, environment, sources: sources, stores: stores) { [weak instance] in
                instance?.announce()
            }
        }
    }

    private func launcherPath() throws(ProviderError) -> String {
        guard let launcher else { return try PluginLauncher.find() }
        return try PluginLauncher.checked(launcher)
    }

    private func plan(
        _ plugin: InstalledPlugin, _ options: PluginOptions, _ configuration: Configure?, _ limit: StartLimit
    ) -> PluginInstance.Plan {
        PluginInstance.Plan(
            path: plugin.path,
            program: { () throws(ProviderError) in
                try PluginProgram(plugin, expected: options.digest)
            },
            launcher: { [self] () throws(ProviderError) in try launcherPath() },
            variables: options.variables, configuration: configuration, timeout: options.timeout,
            processes: processes, observer: observer, sendsUnknown: sendsUnknown, limit: limit,
            idleTime: idleTime)
    }

    /// Returns the plugin with this id; nil if there is none.
    private func usable(_ id: ProviderID) throws(ProviderError) -> InstalledPlugin? {
        guard let plugin = installed.first(where: { $0.id == id }) else { return nil }
        if let refusal = plugin.refusal {
            throw ProviderError(
                .configurationInvalid, "The plugin '\(id)' is not used: \(refusal).", provider: id)
        }
        return plugin
    }

    /// Returns an installed plugin's description of itself; `nil` if there is none. Starts it, unless the answer is cached for
    /// this very file. Blocks.
    ///
    /// - Parameter configured: Its `timeout`, `environment` and `sha256` count; the others are not looked at.
    /// - Throws: `configurationInvalid` for a plugin that is not used, and errors of its start.
    package func describe(
        _ id: ProviderID, _ configured: ProviderParameters = ProviderParameters()
    ) throws(ProviderError) -> PluginDescription? {
        guard let plugin = try usable(id) else { return nil }
        return try description(plugin, try PluginOptions(configured, of: plugin))
    }

    /// As ``describe(_:_:)``, but asks the plugin: its answer may depend on more than the file, such as a library of it.
    package func describeAnew(
        _ id: ProviderID, _ configured: ProviderParameters
    ) throws(ProviderError) -> PluginDescription? {
        guard let plugin = try usable(id) else { return nil }
        let options = try PluginOptions(configured, of: plugin)
        return try ask(plugin, options, try PluginProgram(plugin, expected: options.digest))
    }

    /// Starts an installed plugin, and sends it nothing.
    package func session(
        _ id: ProviderID, variables: [String]
    ) throws(ProviderError) -> PluginSession {
        guard let plugin = try usable(id) else {
            throw ProviderError(
                .configurationInvalid, "The plugin '\(id)' is not installed; \(whereabouts).",
                provider: id)
        }
        return try PluginSession(
            try PluginProgram(plugin, expected: nil), launcher: try launcherPath(),
            variables: variables, noServices(for: plugin), processes, observer)
    }

    /// For a plugin that is not configured.
    private func noServices(for plugin: InstalledPlugin) -> HostServices {
        let environment = ProviderEnvironment(storage: NoStorage(), logger: logger, executor: .threads())
        return HostServices(
            plugin.id, environment, sources: [], stores: UsableKeyStores([:], in: .none, texts: [], sources: [])
        ) {}
    }

    private func description(
        _ plugin: InstalledPlugin, _ options: PluginOptions
    ) throws(ProviderError) -> PluginDescription {
        let program = try PluginProgram(plugin, expected: options.digest)
        // One file may be installed under two names.
        if let cached = cache[program.digest], cached.id == plugin.id.rawValue {
            return try PluginDescription(cached, plugin, builtInSchemes: builtInSchemes)
        }
        return try ask(plugin, options, program)
    }

    private func ask(
        _ plugin: InstalledPlugin, _ options: PluginOptions, _ program: PluginProgram
    ) throws(ProviderError) -> PluginDescription {
        let instance = PluginInstance(plugin.id, plan(plugin, options, nil, cache.limit(for: plugin.id))) {
            [self] _ in noServices(for: plugin)
        }
        let hello = try instance.describe()
        let description = try PluginDescription(hello, plugin, builtInSchemes: builtInSchemes)
        // One with a mistake is asked again: it may be mended without a change of the file.
        for parameters in [description.provider?.parameters ?? []] + description.keyStores.map(\.parameters) {
            for parameter in parameters { _ = try DeclaredParameter(parameter, of: plugin) }
        }
        cache[program.digest] = hello
        return description
    }
}

/// The process of a plugin's key stores, as one of them uses it.
private final class PluginStoreSource: PeerSource {
    private let instance: PluginInstance
    private let isShutDown = BlockingMutex(false)

    init(_ instance: PluginInstance) { self.instance = instance }

    var timeout: Duration { instance.timeout }
    var executor: BlockingExecutor { instance.executor }
    var livePeer: Peer? { isShutDown.withLock(\.self) ? nil : instance.livePeer }
    func beginUse() { instance.beginUse() }
    func endUse() { instance.endUse() }

    func describing(_ error: ProviderError) -> ProviderError { instance.describing(error) }

    func peer() throws(ProviderError) -> Peer {
        guard !isShutDown.withLock(\.self) else {
            throw ProviderError(.operationNotAllowed, "The key store has been shut down; make a new one.")
        }
        return try instance.peer()
    }

    func shutdown() async { isShutDown.withLock { $0 = true } }
}

extension PluginHost {
    /// The parameters that each plugin has, unless it declares one of that name.
    package static var parameters: [ParameterDescriptor] { PluginOptions.descriptors(beside: []) }
}

import ArgumentParser
import CertificateProviderTesting
import CertificateProviding
import CertprovComposition
import FoundationEssentials
import Glibc
import IdentityStore
import Logging
import PluginHost
import Synchronization
import Terminal

/// Runs the conformance suites on a plugin.
struct PluginVerify: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "verify",
        abstract: "Check a plugin against the protocol and the contracts of providers and key stores.",
        discussion: """
            The plugin is started many times. Identities and keys are made and removed again: use a source and a key store \
            that are made for tests. The plugin's part of the identity store is in a temporary directory.
            """)

    @Argument(help: "The executable file.", completion: .file())
    var path: String

    @Option(
        name: .customLong("set"), parsing: .singleValue,
        help: ArgumentHelp(
            "Set a parameter of the plugin; may be repeated. Never a secret: name its source instead.",
            valueName: "name=value"))
    var parameters: [String] = []

    @OptionGroup var place: KeyStoreOptions

    @Flag(help: "Write the result as one JSON document, and errors as JSON on stderr.")
    var json = false

    @Flag(name: .shortAndLong, help: "Show each message to and from the plugin on stderr.")
    var verbose = false

    func validate() throws {
        try place.check()
        if parameters.contains(where: { !$0.contains("=") }) {
            throw ValidationError("--set takes NAME=VALUE; one has no '='.")
        }
    }

    func run() async throws {
        try await CommandContext.guarded(json: json) { () async throws(ProviderError) in
            let verification = try Verification(path, parameters, place, isVerbose: verbose) { line in
                // A failure because of the signal is not a verdict.
                EndingSignal.leaveToSignal()
                if !json { try? Console.print(line + "\n") }
            }
            let items = try await verification.run()
            if json {
                let document = VerificationDocument(path: path, items: items)
                guard let text = try? document.json(warnings: []) else {
                    throw ProviderError(.internal, "The result cannot be written as JSON.")
                }
                try Console.print(text + "\n")
            }
            return items.contains { $0.isFailed } ? .protocol : .done
        }
    }
}

/// One run of all suites on one plugin.
private final class Verification: Sendable {
    /// The result of a check, with the messages of one that has failed.
    struct Item: Sendable {
        let subject: String
        let result: ConformanceReport.Result
        let session: [String]

        var isFailed: Bool {
            if case .failed = result.outcome { return true }
            return false
        }
    }

    private let id: ProviderID
    private let path: String
    private let parameters: ProviderParameters
    private let host: PluginHost
    private let directory: String
    /// The place of the key store that is checked; the whole scheme if it is not named.
    private let place: KeyStoreOptions
    private let show: @Sendable (String) -> Void
    private struct State {
        var items: [Item] = []
        /// The messages since the last result.
        var session: [String] = []
        /// The message that has refused a name of the store.
        var refusedName: String?
    }
    private let state: Recorder

    /// Keeps the messages of the check that runs.
    private final class Recorder: Sendable {
        private let state = Mutex(State())
        /// How many messages a failure is shown with.
        private static let maximum = 12

        func note(_ line: String, refusesName: Bool) {
            state.withLock { state in
                if refusesName { state.refusedName = line }
                state.session.append(line)
                if state.session.count > Self.maximum { state.session.removeFirst() }
            }
        }

        func take() -> [String] {
            state.withLock { state in
                defer { state.session = [] }
                return state.session
            }
        }

        func add(_ item: Item) { state.withLock { $0.items.append(item) } }
        var items: [Item] { state.withLock(\.items) }
        var refusedName: String? { state.withLock(\.refusedName) }
    }

    init(
        _ path: String, _ parameters: [String], _ place: KeyStoreOptions, isVerbose: Bool,
        show: @escaping @Sendable (String) -> Void
    ) throws(ProviderError) {
        let current = FileManager.default.currentDirectoryPath
        let plain = path.hasPrefix("./") ? String(path.dropFirst(2)) : path
        self.path = plain.hasPrefix("/") ? plain : "\(current)/\(plain)"
        let name = self.path.split(separator: "/").last.map(String.init) ?? ""
        guard name.hasPrefix(PluginDirectories.prefix),
            let id = ProviderID(rawValue: String(name.dropFirst(PluginDirectories.prefix.count)))
        else {
            throw ProviderError(
                .usage,
                "'\(path.withVisibleControls)' is not the name of a plugin; it must be \(PluginDirectories.prefix) and an id of "
                    + "lower-case letters, digits, '-' and '_'.")
        }
        guard access(self.path, X_OK) == 0 else {
            throw ProviderError(
                .fileNotFound,
                "\(path.withVisibleControls) cannot be executed: \(errorText(errno)). Name the built plugin, and "
                    + "make it executable with chmod +x.")
        }
        self.id = id
        self.parameters = ProviderParameters(
            [String: ProviderParameters.Value](
                parameters.map { text in
                    let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                    return (String(parts[0]), .init(String(parts[parts.count - 1])))
                }
            ) { $1 })
        self.show = show
        self.place = place
        var template = Array("\(FileManager.default.temporaryDirectory.path)/certprov-verify-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else {
            throw ProviderError(
                .storeWriteFailed, "No temporary directory can be made: \(errorText(errno)).")
        }
        directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        let state = Recorder()
        self.state = state
        let start = ContinuousClock.now
        var builtIns = CommandContext.builtIns
        // Its key may be in another plugin's key store.
        builtIns.pluginDirectories = PluginDirectories(program: self.path, beside: builtIns.pluginDirectories)
        host = builtIns.plugins(
            logger: Self.logger,
            observer: { event in
                let line = PluginTrace.line(of: event, since: start)
                if isVerbose { Console.note(line) }
                state.note(
                    line, refusesName: event.kind == .sent && event.text.contains(PluginHost.nameRefusal.prefix(24)))
            }
        ).sendingUnknownMessages(false)
        ProcessEnd.watch(host, removing: directory)
    }

    private static var logger: Logger { Logger(label: "certprov") { _ in SwiftLogNoOpLogHandler() } }

    /// Runs all checks.
    ///
    /// - Throws: `configurationInvalid` or `unsupportedParameter` for parameters that the plugin cannot be checked with.
    func run() async throws(ProviderError) -> [Item] {
        let checks = ProtocolChecks(id: id, host: host, parameters: parameters)
        var report = ConformanceReport { [self] in note($0, "protocol") }
        do throws(ProviderError) {
            if await checks.run(&report) {
                try await contracts()
                await report.check(
                    "storageNames", "The names of records, entries and leases have no '/', no '@' and no dot in front."
                ) {
                    if let line = state.refusedName { throw Failure(reason: "The host has refused a name: \(line)") }
                }
            }
        } catch {
            await host.shutdown()
            throw error
        }
        await host.shutdown()
        let items = state.items
        let failed = items.count { $0.isFailed }
        let skipped = items.count { item in
            if case .skipped = item.result.outcome { return true }
            return false
        }
        show("\(items.count - failed - skipped) passed, \(failed) failed, \(skipped) skipped.")
        if let refusal = InstalledPlugin.refusal(ofProgram: path) {
            show("The plugin would not be used from this place: \(refusal).")
        }
        return items
    }

    private func note(_ result: ConformanceReport.Result, _ subject: String) {
        let item = Item(subject: subject, result: result, session: state.take())
        state.add(item)
        let name = "\(subject): \(result.name)"
        switch result.outcome {
        case .passed: show("passed   \(name)")
        case .skipped(let reason): show("skipped  \(name): \(reason)")
        case .failed(let reason):
            show("FAILED   \(name): \(reason)")
            show("  Demanded: \(result.demand) See \(result.name) in the plugin protocol, section Conformance.")
            for line in item.session { show("  \(line.count > 160 ? "\(line.prefix(160))…" : line)") }
        }
    }

    private func contracts() async throws(ProviderError) {
        let store = IdentityStore(path: directory + "/store")
        let builtIns = CommandContext.builtIns
        let registry = try ProviderRegistry(builtIns.providers, keyStores: builtIns.keyStores, source: host)
        let provider = try host.provider(id, parameters)
        var stores: [KeyStoreDescriptor] = []
        for scheme in try host.describe(id, parameters)?.schemes ?? [] {
            if let store = try host.keyStore(scheme, parameters) { stores.append(store) }
        }
        let declared = Set(((provider?.parameters ?? []) + stores.flatMap(\.parameters)).map(\.name))
        if let unknown = parameters.names.first(where: { !declared.contains($0) }) {
            throw ProviderError(
                .unsupportedParameter,
                "The plugin has no parameter '\(unknown.withVisibleControls)'; it has "
                    + declared.sorted().joined(separator: ", ") + ".", provider: id)
        }
        let environment: @Sendable (ProviderID) throws(ProviderError) -> ProviderEnvironment = { id in
            ProviderEnvironment(storage: store.storage(for: id), logger: Self.logger, executor: .threads())
        }
        let own: @Sendable ([ParameterDescriptor]) -> ProviderParameters = { [parameters] declared in
            var own = ProviderParameters()
            for parameter in declared { own[parameter.name] = parameters[parameter.name] }
            return own
        }
        let configured = [String: ProviderParameters](
            stores.map { ($0.scheme, own($0.parameters)) }
        ) { first, _ in first }
        let paths =
            [.path, .secretPath].flatMap { (kind: ParameterDescriptor.Kind) in
                ((provider?.parameters ?? []) + stores.flatMap(\.parameters)).filter { $0.kind == kind }.map(\.name)
            }.compactMap { parameters.string($0) } + [place.path].compactMap(\.self)
        let files = WrittenFiles(Set(paths.map { RegularFile.absolute($0) }).sorted())
        if let provider {
            let own = own(provider.parameters)
            let surroundings: @Sendable () throws(ProviderError) -> ProviderEnvironment = {
                var surroundings = try environment(provider.id)
                surroundings.keyStores = try registry.keyStores(configured, in: environment)
                return surroundings
            }
            // A wrong parameter is not the plugin's mistake.
            let made = try provider.makeProvider(try surroundings(), own)
            await made.shutdown()
            _ = await ProviderConformance(provider, own, interaction: TerminalInteraction()) { try surroundings() }
                .noting(
                    ignoredCancellation: { [host] in host.ignoredCancellation },
                    unsupported: { [host] in host.takeUnsupported() }, files: files
                ).run { [self] in note($0, "provider") }
            if made.keyStore != nil {
                // Requests without 'store' mean it.
                _ = await KeyStoreConformance(interaction: TerminalInteraction()) {
                    try require(
                        try provider.makeProvider(try surroundings(), own).keyStore,
                        "The provider has no key store now.")
                }.noting(files: files).run { [self] in note($0, "key store of the provider") }
            }
        }
        for descriptor in stores {
            let isNamed = place.key.map { $0.lowercased().hasPrefix(descriptor.scheme + ":") } ?? false
            let (uri, pinSource) = isNamed ? (place.key, place.pinSource) : (nil, nil)
            let location = uri ?? descriptor.scheme + ":"
            _ = host.takeUnsupported()
            _ = await KeyStoreConformance(place: location, interaction: TerminalInteraction()) {
                try registry.keyStores(configured, in: environment).store(
                    location, pinSource: pinSource, parameter: "key")
            }.noting(files: files).run { [self] in note($0, "key store \(descriptor.scheme)") }
            var report = ConformanceReport { [self] in note($0, "key store \(descriptor.scheme)") }
            await report.check(
                "abilities", "A key store answers each request for keys, and each one that its 'can' names."
            ) {
                // The store goes on without the answer to some.
                if let message = host.takeUnsupported() { throw Failure(reason: message) }
            }
        }
    }
}

/// The result of `plugin verify`.
private struct VerificationDocument: CommandDocument {
    static let kind = "PluginVerification"

    let path: String
    let passed: Bool
    let items: [Item]

    struct Item: Encodable {
        let subject: String
        let name: String
        let outcome: String
        let reason: Nullable<String>
        let demand: String
        /// The last messages of a check that has failed.
        let session: [String]
    }

    init(path: String, items: [Verification.Item]) {
        self.path = path
        passed = !items.contains { $0.isFailed }
        self.items = items.map { item in
            let (outcome, reason): (String, String?) =
                switch item.result.outcome {
                case .passed: ("passed", nil)
                case .skipped(let reason): ("skipped", reason)
                case .failed(let reason): ("failed", reason)
                }
            return Item(
                subject: item.subject, name: item.result.name, outcome: outcome, reason: Nullable(reason),
                demand: item.result.demand, session: item.isFailed ? item.session : [])
        }
    }
}

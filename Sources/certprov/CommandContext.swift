import ArgumentParser
import CertificateProviding
import CertprovComposition
import FoundationEssentials
import Glibc
import HostService
import IdentityFiles
import IdentityStore
import Logging
import Logon
import NIOCore
import PluginHost
import SigningRequests
import Terminal

/// The context of a subcommand: its options, the installed providers and the output streams.
struct CommandContext: Sendable {
    /// The options that every subcommand has.
    let options: GlobalOptions
    private let composition: Composition
    /// The providers of this build, and the plugins of this host.
    var registry: ProviderRegistry { composition.registry }
    /// The plugins of this host.
    var plugins: PluginHost { composition.plugins }
    /// Reads the secrets that options and parameters name.
    var secrets: SecretReader { composition.secrets }
    /// Logs to stderr; from `trace` with `--verbose`, else from `warning`.
    let logger: Logger
    /// Asks the user, as `--prompt` says.
    let interaction: any UserInteraction
    /// The program for questions with `--prompt pinentry`. It ends with this process.
    let pinentry: Pinentry
    private let warnings: Warnings

    /// The built-in parts. A debug build leaves tokens and enrolment to plugins if a test says so: `make test-plugged`.
    static let builtIns: BuiltIns = {
        var builtIns = BuiltIns.all
        #if DEBUG
            if let directory = getenv("CERTPROV_TEST_PLUGINS") {
                builtIns = .withoutTokensAndEnrolment(pluginsIn: String(cString: directory))
            }
        #endif
        builtIns.sections += [.signingRequests, ServeSection.settings]
        return builtIns
    }()

    /// - Parameter executor: Runs what blocks. Most commands have one thing to do, on a thread of their own, which it may block.
    init(
        _ options: GlobalOptions, executor: BlockingExecutor = BlockingExecutor { job in job() }
    ) throws(ProviderError) {
        self.options = options
        let format = options.logFormat ?? .usual
        // A person at a terminal sees what the command shows; the others get the events.
        let level: Logger.Level = options.verbose > 0 ? .trace : format == .text ? .warning : .notice
        let warnings = Warnings(of: "certprov", collecting: options.json, as: format)
        self.warnings = warnings
        var logger = Logger(label: "certprov") { _ in ConsoleLogHandler(warnings) }
        logger.logLevel = level
        self.logger = logger
        composition = try Composition(
            Self.builtIns, executor: executor, logger: logger, observer: PluginTrace.observer)
        pinentry = Self.pinentry(options, composition.registry)
        interaction =
            options.prompt == .pinentry ? PinentryInteraction(pinentry) : TerminalInteraction(orElse: "use --yes")
        ProcessEnd.atEnd { [pinentry] in pinentry.end() }
        ProcessEnd.watch(plugins)
    }

    /// Runs a subcommand without core dumps, reports its error on stderr, and exits with the status of the error.
    ///
    /// - Parameter hasQueue: Whether questions can wait in the queue of signing requests.
    static func run(
        _ options: GlobalOptions, executor: BlockingExecutor = BlockingExecutor { job in job() },
        hasQueue: Bool = false, _ body: (CommandContext) async throws(ProviderError) -> ExitStatus
    ) async throws {
        try await guarded(json: options.reportsJSON) { () async throws(ProviderError) in
            guard hasQueue || options.prompt != .queue else {
                throw ProviderError(
                    .usage,
                    "--prompt queue is for certprov requests serve and certprov requests open; use terminal or pinentry here."
                )
            }
            let context = try CommandContext(options, executor: executor)
            do throws(ProviderError) {
                let status = try await body(context)
                await context.plugins.shutdown()
                return status
            } catch {
                await context.plugins.shutdown()
                throw error
            }
        }
    }

    /// Runs a subcommand that needs no context of providers, in the same way.
    static func guarded(
        json: Bool, _ body: () async throws(ProviderError) -> ExitStatus
    ) async throws {
        CommandProcess.prepare()
        // SwiftNIO would start a thread for each processor. A command has one connection at a time.
        NIOSingletons.groupLoopCountSuggestion = 1
        NIOSingletons.blockingPoolThreadCountSuggestion = 1

        let status: ExitStatus
        do throws(ProviderError) { status = try await body() } catch {
            // The end by a signal says enough.
            EndingSignal.leaveToSignal()
            report(error, json: json)
            status = ExitStatus(error.code)
        }
        if status != .done { throw ExitCode(status.rawValue) }
    }

    /// Shows an error on stderr.
    func report(_ error: ProviderError) { Self.report(error, json: options.reportsJSON) }

    /// Shows an error on stderr, also before the options have been parsed.
    static func report(_ error: ProviderError, json: Bool) {
        Console.report(error, of: "certprov", json: json)
    }

    /// Adds a warning: on stderr, or with `--json` in the document that is shown next.
    func remark(_ text: String) { warnings.append(text) }

    /// Says that an identity was stored whose password a person has typed, for a command that need not be expected to do so.
    func remarkOnCopy(of identity: Identity, _ configuration: LogonConfiguration) {
        guard identity.key.location == .store, configuration.asksForPassword else { return }
        let source = identity.provenance.source ?? "\(identity.provenance.provider)"
        remark(
            "the identity of \(source.withVisibleControls) is now stored, sealed, and later commands use it without the password; "
                + "'certprov delete' with the same options removes it")
    }

    /// Lets the provider destroy the replaced identity. A failure is only a warning.
    func discardReplaced(
        by identity: Identity, of manager: LogonManager, _ interaction: any UserInteraction
    ) async {
        do throws(ProviderError) { try await manager.discardReplaced(by: identity, interaction) } catch {
            remark(
                "the replaced identity could not be destroyed; the next renewal tries again: "
                    + error.message)
        }
    }

    /// Returns what writes the files of the section `Files.`; `nil` without one.
    ///
    /// - Throws: `configurationInvalid`, and errors of a password's source.
    func filesExport(_ configuration: LogonConfiguration) throws(ProviderError) -> IdentityExport? {
        try IdentityExport(configuration.settings, secrets: secrets)
    }

    /// Logs the manager's decisions at level `debug`.
    func log(_ decisions: [Decision]) { for decision in decisions { logger.debug("\(decision)") } }

    /// Writes the result to stdout: `document` with `--json`, else `text`.
    func show(
        _ document: some CommandDocument, text: () -> String
    ) throws(ProviderError) {
        try Console.show(document, json: options.json, warnings, text: text)
    }

    /// Loads the configuration, and shows its warnings.
    func configuration() throws(ProviderError) -> LogonConfiguration {
        let configuration = try configurationWithoutRemarks()
        configuration.warnings.forEach(remark)
        return configuration
    }

    /// Loads the configuration, for a command that shows its warnings itself.
    func configurationWithoutRemarks() throws(ProviderError) -> LogonConfiguration {
        try ConfigurationLookup(options: options, registry: registry).configuration()
    }

    /// Returns a manager for the configuration and this host's identity store. The vault of an application that is registered
    /// is unlocked if that needs no user: by the login session, or by `Passcode.source`.
    ///
    /// - Parameters:
    ///   - interaction: Asks for the passcode of a vault that is still locked; `nil` to leave it so.
    ///   - onRead: Gets the path of each entry of the store that the providers ask for.
    func manager(
        _ configuration: LogonConfiguration, unlocking interaction: (any UserInteraction)? = nil,
        onRead: (@Sendable (String) -> Void)? = nil
    ) async throws(ProviderError) -> LogonManager {
        let (manager, vault) = try managerAsItIs(configuration, onRead: onRead)
        if let vault { try await unlock(vault, of: manager, interaction) }
        return manager
    }

    /// Unlocks a vault as ``manager(_:unlocking:)`` does.
    func unlock(
        _ vault: DataVault, of manager: LogonManager, _ interaction: (any UserInteraction)? = nil
    ) async throws(ProviderError) {
        guard try await manager.registrationState() == .registeredLocked, try !vault.unlockFromSession() else { return }
        do throws(ProviderError) { try await unlock(manager, vault, interaction) } catch {
            // Another process has unregistered the application since.
            guard error.code != .vaultDestroyed, try await manager.registrationState() == .notRegistered else {
                throw error
            }
        }
    }

    private func unlock(
        _ manager: LogonManager, _ vault: DataVault, _ interaction: (any UserInteraction)?
    ) async throws(ProviderError) {
        let source = manager.configuration.registration.passcodeSource
        if try vault.hasNoPasscode() {
            // All that it needs is a key of a key store.
            try await manager.unlock(interaction ?? NoUserInteraction())
        } else if let source, source != .prompt {
            // Also for commands that use the providers directly.
            try await manager.unlock(interaction ?? NoUserInteraction())
        } else if let interaction, interaction.canAsk {
            try await manager.unlock(interaction)
        }
    }

    /// Returns a manager, and the vault of its application, which is not touched; `nil` if the configuration has none.
    func managerAsItIs(
        _ configuration: LogonConfiguration, onRead: (@Sendable (String) -> Void)? = nil
    ) throws(ProviderError) -> (LogonManager, DataVault?) {
        var configuration = configuration
        // The vault is locked when the command ends, and not while the user thinks about a question.
        configuration.registration.lockTimeout = nil
        setLibrariesApart(
            usedBy: [configuration.registration.vaultKey]
                + configuration.providers.flatMap { provider in
                    provider.parameters.names.map { provider.parameters.string($0) }
                }, configuration.providers.map(\.id))
        return try composition.manager(configuration, onRead: onRead)
    }

    /// Sets the standard streams apart from the libraries that key stores and providers load: before they load the first.
    func setLibrariesApart(usedBy uris: [String?], _ providers: [ProviderID] = []) {
        let schemes = registry.keyStores.filter(\.loadsVendorCode).map(\.scheme)
        let loads =
            uris.contains { uri in
                uri.flatMap { KeyStoreLocation(uri: $0, pinSource: nil) }.map { schemes.contains($0.scheme) } ?? false
            } || Self.builtIns.providers.contains { $0.loadsVendorCode && providers.contains($0.id) }
        if loads { Console.setLibrariesApart(showing: options.verbose > 0) }
    }

    /// Returns the manager and the vault of the application that is configured.
    ///
    /// - Throws: `configurationInvalid` if there is none.
    func application() throws(ProviderError) -> (LogonManager, DataVault) {
        let lookup = ConfigurationLookup(options: options, registry: registry, mayBeOptions: false)
        let configuration = try lookup.configuration()
        configuration.warnings.forEach(remark)
        let (manager, vault) = try managerAsItIs(configuration)
        if let vault { return (manager, vault) }
        guard let path = configuration.path else {
            throw ProviderError(
                .configurationInvalid, "An application is registered with a property file; name one with --config.")
        }
        throw ProviderError(
            .configurationInvalid,
            "\(path.withVisibleControls): The configuration has no application to register; set ApplicationId.")
    }

    /// As ``application()``, of an application that is registered, or was not unregistered to the end.
    ///
    /// - Throws: `notFound` if it is not.
    func registeredApplication() async throws(ProviderError) -> (LogonManager, DataVault) {
        let (manager, vault) = try application()
        guard try await manager.registrationState() != .notRegistered else {
            throw ProviderError(
                .notFound,
                "The application '\(vault.applicationID)' is not registered, so it has no vault; run: certprov register"
            )
        }
        return (manager, vault)
    }

    /// The parts that several identities of this process share, with another log.
    func composition(logging logger: Logger) -> Composition {
        var composition = composition
        composition.logger = logger
        return composition
    }

    /// Returns this host's identity store.
    func identityStore() throws(ProviderError) -> IdentityStore { try composition.store() }

    /// Returns the environment for passwords at time-stamp servers. No plugin may have a name that ends so.
    func timeStampEnvironment() throws(ProviderError) -> ProviderEnvironment {
        environment(try identityStore().storage(for: ProviderID("time-stamps_")))
    }

    /// Returns the environment with a part of an identity store.
    func environment(_ storage: any IdentityStorage) -> ProviderEnvironment { composition.environment(storage) }
}

extension LogonConfiguration {
    /// Whether a person types the password of an identity.
    var asksForPassword: Bool {
        providers.contains { $0.parameters.string("password-source") == SecretSource.prompt.description }
    }
}

import ArgumentParser
import CLinux
public import CertificateProviding
import FoundationEssentials
import Glibc
import IdentityStore
public import Logging
public import LogonCore
import PKCS12FileProvider
import RemoteMDMParameters

#if PKCS11
    import PKCS11TokenProvider
#endif

/// What a subcommand works with: its options, the installed providers, and the streams.
public struct CommandContext: Sendable {
    /// What this program has beyond the others. Set around a command's run, since ArgumentParser makes the commands.
    @TaskLocal package static var abilities = ProgramAbilities.none

    public let options: GlobalOptions
    public let registry: ProviderRegistry
    public let secrets = SecretReader()
    public let logger: Logger
    private let warnings: Warnings

    /// The providers of this build.
    private static var installed: [ProviderDescriptor] {
        let remote = RemoteMDMParameters.descriptor(makeProvider: abilities.makeRemoteMDMProvider)
        #if PKCS11
            return [PKCS12FileProvider.descriptor, PKCS11TokenProvider.descriptor, remote]
        #else
            return [PKCS12FileProvider.descriptor, remote]
        #endif
    }

    init(_ options: GlobalOptions) throws(CertificateProviderError) {
        self.options = options
        self.registry = try ProviderRegistry(Self.installed)
        let level: Logger.Level = options.verbose == 0 ? .warning : .trace
        let warnings = Warnings(collecting: options.json)
        self.warnings = warnings
        var logger = Logger(label: "certprov") { _ in ConsoleLogHandler(warnings: warnings) }
        logger.logLevel = level
        self.logger = logger
    }

    /// Runs a subcommand: lets it leave no core dump, reports what goes wrong, and exits with the status that belongs
    /// to it.
    public static func run(
        _ options: GlobalOptions, _ body: (CommandContext) async throws(CertificateProviderError) -> ExitStatus
    ) async throws {
        // Passwords and keys live in pages that are left out of core dumps; what libraries copied does not. A program
        // that the kernel pipes dumps to gets them whatever the limit is, but none of a process like this.
        _ = certprov_set_dumpable(0)
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
        // A reader that has gone away is an error to report, not a silent death.
        signal(SIGPIPE, SIG_IGN)

        let status: ExitStatus
        do throws(CertificateProviderError) {
            status = try await body(try CommandContext(options))
        } catch {
            report(error, json: options.json)
            status = ExitStatus(error.code)
        }
        if status != .done { throw ExitCode(status.rawValue) }
    }

    /// Shows an error on stderr.
    public func report(_ error: CertificateProviderError) { Self.report(error, json: options.json) }

    /// Shows an error on stderr, before there are options as well.
    public static func report(_ error: CertificateProviderError, json: Bool) {
        if json, let text = try? ErrorDocument(error).json() {
            Console.note(text)
        } else {
            Console.note("certprov: \(error)")
        }
    }

    /// Says something that is worth knowing: on stderr, and with `--json` in the document that is shown next.
    public func remark(_ text: String) { warnings.append(text) }

    /// Lets the provider destroy what a new identity has replaced. That it cannot is worth knowing, and no failure.
    func discardReplaced(
        by identity: Identity, of manager: LogonManager, _ interaction: any UserInteraction
    ) async {
        do throws(CertificateProviderError) { try await manager.discardReplaced(by: identity, interaction) } catch {
            remark(
                "the replaced identity could not be destroyed; the next renewal tries again: "
                    + error.message)
        }
    }

    /// Tells somebody who asked to hear more how the manager came to its result.
    package func log(_ decisions: [Decision]) { for decision in decisions { logger.debug("\(decision)") } }

    /// Writes a document, or what `text` makes where no JSON is asked for.
    public func show(
        _ document: some Document, text: () -> String
    ) throws(CertificateProviderError) {
        guard options.json else { return try Console.print(text()) }
        let json: String
        do { json = try document.json(warnings: warnings.texts) } catch {
            throw CertificateProviderError(.internal, "The result cannot be written as JSON.", underlying: error)
        }
        try Console.print(json + "\n")
    }

    /// The configuration, whose warnings the person has heard.
    public func configuration() throws(CertificateProviderError) -> LogonConfiguration {
        let configuration = try configurationWithoutRemarks()
        configuration.warnings.forEach(remark)
        return configuration
    }

    /// The configuration, for a command that shows its warnings itself.
    func configurationWithoutRemarks() throws(CertificateProviderError) -> LogonConfiguration {
        try ConfigurationLookup(options: options, registry: registry).configuration()
    }

    /// The manager over the configuration and this host's identity store.
    public func manager(_ configuration: LogonConfiguration) throws(CertificateProviderError) -> LogonManager {
        #if PKCS11
            // Before the first of its modules is loaded.
            if configuration.providers.contains(where: {
                $0.id == PKCS11TokenProvider.id || $0.parameters.string("key")?.hasPrefix("pkcs11:") == true
            }) {
                Console.setLibrariesApart(showing: options.verbose > 0)
            }
        #endif
        let store = try IdentityStore.standard(secrets: secrets)
        // The command has one thing to do, on a thread of its own: what blocks may block it.
        let executor = BlockingExecutor { job in job() }
        return try LogonManager(configuration: configuration, registry: registry) { id in
            ProviderEnvironment(
                storage: store.storage(for: id), secrets: secrets, logger: logger, executor: executor)
        }
    }
}

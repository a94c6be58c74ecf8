import Logon
import ArgumentParser
import CertificateProviding
import CertprovSigning
import Contracts
import Glibc
import Logging
import Terminal

/// What a subcommand works with: its options, the configured host, the queue, and the output streams.
struct Context: Sendable {
    let options: GlobalOptions
    /// The host's identity and settings, with the section `Contracts.`
    let logon: CertprovLogon
    /// Asks the user at the terminal.
    let interaction: TerminalInteraction
    /// The same, of a subcommand with `--yes`.
    let interactionOrYes = TerminalInteraction(orElse: "run the command at a terminal, or use --yes")
    /// Logs to stderr; from `trace` with `--verbose`, else from `warning`.
    let logger: Logger
    private let warnings: Warnings

    /// The settings of the property file: `context.settings[ContractsSettings.url]`.
    var settings: Parameters { logon.manager.configuration.settings }
    /// Whether a server is configured: else contracts are signed here only.
    var hasServer: Bool { settings[ContractsSettings.url] != nil }

    /// Reads the property file.
    ///
    /// - Throws: `configurationMissing`, `configurationInvalid`, and errors of this host's store.
    init(_ options: GlobalOptions) throws(ProviderError) {
        self.options = options
        let warnings = Warnings(of: "contracts", collecting: options.json)
        var logger = Logger(label: "contracts") { _ in ConsoleLogHandler(warnings) }
        logger.logLevel = options.verbose ? .trace : .warning
        (self.warnings, self.logger) = (warnings, logger)
        interaction = TerminalInteraction()
        logon = try CertprovLogon(
            configuredBy: PropertyFile.path(named: options.config),
            sections: [ContractsSettings.section, .signingRequests], logger: logger)
    }

    /// Runs a subcommand: shows its error on stderr, and exits with the status of the error.
    ///
    /// - Parameter isReading: Whether the subcommand only shows what is there: then callbacks that a process has left behind stay
    ///   written down.
    static func run(
        _ options: GlobalOptions, isReading: Bool = false,
        _ body: (Context) async throws(ProviderError) -> ExitStatus
    ) async throws {
        try await guarded(options) { () async throws(ProviderError) in
            let context = try Context(options)
            do throws(ProviderError) {
                try await context.unlock()
                if !isReading { await context.resumeCallbacks() }
                let status = try await body(context)
                await context.logon.manager.shutdown()
                return status
            } catch {
                await context.logon.manager.shutdown()
                // No document will have them.
                for text in context.warnings.take() { context.remark(text) }
                throw error
            }
        }
    }

    /// Runs a subcommand that needs no property file, in the same way.
    static func guarded(
        _ options: GlobalOptions, _ body: () async throws(ProviderError) -> ExitStatus
    ) async throws {
        let status: ExitStatus
        do throws(ProviderError) { status = try await body() } catch {
            report(error, json: options.json)
            status = ExitStatus(error.code)
        }
        if status != .done { throw ExitCode(status.rawValue) }
    }

    /// Unlocks the vault of a registered application, where that needs a person.
    private func unlock() async throws(ProviderError) {
        guard logon.manager.configuration.registration.applicationID != nil, interaction.canAsk,
            try await logon.manager.registrationState() == .registeredLocked
        else { return }
        try await logon.manager.unlock(interaction)
    }

    /// Shows an error on stderr, and goes on.
    func report(_ error: ProviderError) { Self.report(error, json: options.json) }

    /// Shows an error on stderr, also before the options have been parsed.
    static func report(_ error: ProviderError, json: Bool) {
        var error = error
        // A call in the wrong place, such as after --config.
        error.message = CallText.hidingCalls(of: CommandLine.arguments, in: error.message)
        Console.report(error, of: "contracts", json: json)
    }

    /// Adds a warning: on stderr, or with `--json` in the document that is shown next.
    func remark(_ text: String) { warnings.append(text) }

    /// Writes the result to stdout: `document` with `--json`, else `text`.
    func show(_ document: some CommandDocument, text: () -> String) throws(ProviderError) {
        try Console.show(document, json: options.json, warnings, text: text)
    }
}

import ArgumentParser
import CertificateProviding
import CertprovKit
import Glibc
import Logging
import Logon
import ProviderTransport
import SplitKeySigning
import Terminal

/// What a subcommand works with.
struct Context: Sendable {
    let options: GlobalOptions
    let logon: CertprovLogon
    /// Asks the user at the terminal.
    let interaction: TerminalInteraction
    private let warnings: Warnings
    /// Logs to stderr; from `trace` with `--verbose`, else from `warning`.
    private let logger: Logger

    private var settings: Parameters { logon.manager.configuration.settings }

    /// Reads the property file.
    init(_ options: GlobalOptions) throws(ProviderError) {
        self.options = options
        let warnings = Warnings(of: "dvs", collecting: options.json)
        var logger = Logger(label: "dvs") { _ in ConsoleLogHandler(warnings) }
        logger.logLevel = options.verbose ? .trace : .warning
        (self.warnings, self.logger) = (warnings, logger)
        interaction = TerminalInteraction(orElse: "run the command at a terminal, or use --yes")
        logon = try CertprovLogon(
            configuredBy: PropertyFile.path(named: options.config), sections: [SplitKeySettings.section],
            logger: logger)
    }

    /// Runs a subcommand: shows its error on stderr, and exits with the status of the error.
    static func run(
        _ options: GlobalOptions, _ body: (Context) async throws(ProviderError) -> ExitStatus
    ) async throws {
        let status: ExitStatus
        do throws(ProviderError) {
            let context = try Context(options)
            do throws(ProviderError) {
                try await context.unlock()
                status = try await body(context)
            } catch {
                await context.logon.manager.shutdown()
                throw error
            }
            await context.logon.manager.shutdown()
        } catch {
            report(error, json: options.json)
            throw ExitCode(ExitStatus(error.code).rawValue)
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

    // MARK: - Keys

    func store() throws(ProviderError) -> SplitKeyStore {
        SplitKeyStore(try logon.manager.environment(of: ProviderID("splitkey_")).storage)
    }

    /// The authority of the settings.
    func authority() throws(ProviderError) -> Authority {
        guard let server = settings[SplitKeySettings.authority] else {
            throw ProviderError(
                .configurationMissing, "No authority is configured; set SplitKey.authority in the property file.")
        }
        return Authority(server, try exchange(server))
    }

    private func exchange(_ server: ServerURL) throws(ProviderError) -> NetworkExchange {
        let trust = ConfiguredTrust(
            anchors: SplitKeySettings.trustAnchors, pins: SplitKeySettings.pin, in: settings)
        try trust.requireConfigured(for: server)
        return NetworkExchange(
            trusting: try trust.serverTrust(), timeout: settings[SplitKeySettings.timeout], logger: logger)
    }

    func host() throws(ProviderError) -> SplitKeyHost {
        let authority = try authority()
        let party = try settings[SplitKeySettings.relyingParty].map { server throws(ProviderError) in
            RelyingParty(server, try exchange(server))
        }
        var sources: [MPinID.Scope: SecretSource] = [:]
        sources[.login] = settings[SplitKeySettings.loginPINSource]
        sources[.signing] = settings[SplitKeySettings.pinSource]
        return SplitKeyHost(
            try store(), authority, party,
            pairing: PairingHelper(settings[SplitKeySettings.pairingHelper] ?? Self.defaultHelper),
            companyID: settings[SplitKeySettings.companyID], PINDesk(sources, asking: interaction, logger: logger))
    }

    /// Beside this program, else in PATH.
    private static var defaultHelper: String {
        let name = "pairing-helper"
        guard let program = realpath("/proc/self/exe", nil) else { return name }
        defer { free(program) }
        let beside = String(cString: program).split(separator: "/").dropLast().map { "/" + $0 }.joined() + "/" + name
        return access(beside, X_OK) == 0 ? beside : name
    }

    /// The user of an option; without it the only one.
    func user(_ option: UserOption, of host: SplitKeyHost) throws(ProviderError) -> String {
        if let user = option.user { return user }
        let (login, signing) = try host.users()
        let users = login.union(signing).sorted()
        guard let user = users.first else {
            throw ProviderError(.notFound, "There is no key here; run: dvs enrol")
        }
        guard users.count == 1 else {
            throw ProviderError(
                .usage,
                "Several users have keys here: \(DisplayText.visible(users.joined(separator: ", "))). Name one with --user."
            )
        }
        return user
    }

    // MARK: - Output

    /// Shows an error on stderr, also before the options have been parsed.
    static func report(_ error: ProviderError, json: Bool) {
        Console.report(error, of: "dvs", json: json)
    }

    /// Adds a warning: on stderr, or with `--json` in the document that is shown next.
    func remark(_ text: String) { warnings.append(text) }

    /// Writes the result to stdout: `document` with `--json`, else `text`.
    func show(_ document: some CommandDocument, text: () -> String) throws(ProviderError) {
        try Console.show(document, json: options.json, warnings, text: text)
    }
}

import ArgumentParser
import CertificateProviding
import CertprovKit
import Foundation
import Logging
import Terminal

@main
struct RelyingPartyCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "relying-party",
        abstract: "Has documents signed with split keys, and verified by their authority.",
        subcommands: [ServeCommand.self, ForgetUserCommand.self])

    /// Runs a subcommand. An error goes to stderr, and its kind into the exit status.
    static func run(_ body: () async throws -> Void) async throws {
        // The client's secret is in memory.
        var none = rlimit(rlim_cur: 0, rlim_max: 0)
        setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &none)
        umask(0o077)
        do { try await body() } catch let error as ProviderError {
            try? FileHandle.standardError.write(contentsOf: Data("relying-party: \(error)\n".utf8))
            throw ExitCode(ExitStatus(error.code).rawValue)
        }
    }
}

struct ConfigurationOptions: ParsableArguments {
    @Option(help: ArgumentHelp("The property file.", valueName: "file")) var config: String

    func logon(_ logger: Logger) throws(ProviderError) -> CertprovLogon {
        try CertprovLogon(configuredBy: config, sections: [RelyingPartySettings.section], logger: logger)
    }

    static func logger() -> Logger {
        var logger = Logger(label: "relying-party") { StreamLogHandler.standardError(label: $0) }
        logger.logLevel =
            ProcessInfo.processInfo.environment["LOG_LEVEL"].flatMap { Logger.Level(rawValue: $0) } ?? .notice
        return logger
    }
}

struct ForgetUserCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "forget-user", abstract: "Let a user bring a new key: the next one that signs for the user counts."
    )

    @OptionGroup var options: ConfigurationOptions
    @Argument(help: ArgumentHelp("The userID.", valueName: "user")) var user: String

    func run() async throws {
        try await RelyingPartyCommand.run {
            let settings = try options.logon(ConfigurationOptions.logger()).manager.configuration.settings
            let keys = try BoundKeys(directory: try settings.required(RelyingPartySettings.state))
            guard try keys.forget(user) else {
                throw ProviderError(
                    .notFound, "No key is recorded for \(DisplayText.visible(user)) in \(keys.directory).")
            }
        }
    }
}

public import ArgumentParser
import CertificateProviding
import Glibc
import Synchronization

/// What `certprov` and `certprov-full` have in common. They differ in what `connect` is.
public enum RootCommand {
    public static func configuration(connect: any AsyncParsableCommand.Type) -> CommandConfiguration {
        CommandConfiguration(
            commandName: "certprov",
            abstract: "Get the X.509 identity of a service for mutual TLS, from a file, a token or an enrolment server.",
            discussion:
                "Results go to stdout, everything else to stderr. Secrets are never taken from the command line.",
            version: "0.1.0",
            subcommands: [
                List.self, Fetch.self, Delete.self, Explain.self, connect, Providers.self, Check.self, Renew.self,
                Keygen.self,
                StoreCertificate.self,
            ])
    }

    /// Does what the command line says, and ends the process.
    public static func run<Root: AsyncParsableCommand>(_ root: Root.Type) -> Never {
        let arguments = Array(CommandLine.arguments.dropFirst())
        let isJSON = arguments.contains("--json")
        if let position = firstArgumentThatIsNotText() {
            CommandContext.report(
                CertificateProviderError(
                    .usage, "Argument \(position) is not UTF-8; rename the file, or use a link to it."),
                json: isJSON)
            exit(ExitStatus.usage.rawValue)
        }
        ProcessEnd.catchSignals()
        let failure = Mutex<(any Error)?>(nil)
        MainThreadExecutor().run {
            do {
                var command = try parse(root, arguments)
                if var command = command as? any AsyncParsableCommand {
                    try await command.run()
                } else {
                    try command.run()
                }
            } catch {
                failure.withLock { $0 = error }
            }
        }
        let error = failure.withLock { $0 }
        if error == nil { ProcessEnd.end(ExitStatus.done.rawValue) }
        if let status = error as? ExitCode { ProcessEnd.end(status.rawValue) }
        if isJSON, let error, !(error is ExitCode), root.exitCode(for: error) == .validationFailure {
            CommandContext.report(CertificateProviderError(.usage, root.message(for: error)), json: true)
            exit(ExitStatus.usage.rawValue)
        }
        // Help, version and completion scripts: ArgumentParser ignores errors of stdout.
        if let error, root.exitCode(for: error) == .success {
            do throws(CertificateProviderError) { try Console.print(root.fullMessage(for: error) + "\n") } catch {
                CommandContext.report(error, json: isJSON)
                exit(ExitStatus(error.code).rawValue)
            }
            exit(ExitStatus.done.rawValue)
        }
        root.exit(withError: error)
    }

    /// Returns the position, counted from 1, of an argument that `CommandLine.arguments` does not give as it is: it
    /// puts U+FFFD for what is not UTF-8, which in the name of a file is another file.
    private static func firstArgumentThatIsNotText() -> Int? {
        (1..<max(1, Int(CommandLine.argc))).first { index in
            CommandLine.unsafeArgv[index].map { String(validatingCString: $0) == nil } ?? false
        }
    }

    /// Goes straight to the subcommand: through the root command the parser would first set up every subcommand and
    /// the completion scripts, which takes as long as listing a file does. What is then wrong, or wants to be shown,
    /// the root command says, since it knows the whole command line.
    private static func parse<Root: AsyncParsableCommand>(
        _ root: Root.Type, _ arguments: [String]
    ) throws -> any ParsableCommand {
        if let command = plainCommand(arguments) { return command }
        if arguments.first == "help", arguments.count == 2 {
            // The subcommand's own words: that of `certprov` for `connect` has them from `certprov-full`.
            return try parse(root, [arguments[1], "--help"])
        }
        let subcommand = root.configuration.subcommands.first { $0.configuration.commandName == arguments.first }
        if let command = try? subcommand?.parse(Array(arguments.dropFirst())) { return command }
        return try root.parseAsRoot(arguments)
    }

    /// The subcommands that run often, without the parser.
    private static func plainCommand(_ arguments: [String]) -> (any ParsableCommand)? {
        let options = arguments.dropFirst()
        return switch arguments.first {
        case "list": List.plain(options)
        case "fetch": Fetch.plain(options)
        case "renew": Renew.plain(options)
        default: nil
        }
    }
}

public import ArgumentParser
import Glibc
import Synchronization

/// What `certprov` and `certprov-full` have in common. They differ in what `connect` is.
public enum RootCommand {
    public static func configuration(connect: any AsyncParsableCommand.Type) -> CommandConfiguration {
        CommandConfiguration(
            commandName: "certprov",
            abstract: "Get the X.509 identity that a service needs for mutual TLS, from wherever it is kept.",
            discussion:
                "Results go to stdout, everything else to stderr. Secrets are never taken from the command line.",
            version: "0.1.0",
            subcommands: [
                List.self, Fetch.self, Delete.self, Explain.self, connect, Providers.self, Check.self,
            ])
    }

    /// Does what the command line says, and ends the process.
    public static func run<Root: AsyncParsableCommand>(_ root: Root.Type) -> Never {
        let failure = Mutex<(any Error)?>(nil)
        MainThreadExecutor().run {
            do {
                var command = try parse(root, Array(CommandLine.arguments.dropFirst()))
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
        // Everything has been written. Ending the usual way, OpenSSL would first take its tables apart.
        if error == nil { _exit(ExitStatus.done.rawValue) }
        root.exit(withError: error)
    }

    /// Goes straight to the subcommand: through the root command the parser would first set up every subcommand and
    /// the completion scripts, which takes as long as listing a file does. What is then wrong, or wants to be shown,
    /// the root command says, since it knows the whole command line.
    private static func parse<Root: AsyncParsableCommand>(
        _ root: Root.Type, _ arguments: [String]
    ) throws -> any ParsableCommand {
        if arguments.first == List.configuration.commandName, let options = GlobalOptions(plain: arguments.dropFirst())
        {
            var list = List()
            list.options = options
            return list
        }
        let subcommand = root.configuration.subcommands.first { $0.configuration.commandName == arguments.first }
        if let command = try? subcommand?.parse(Array(arguments.dropFirst())) { return command }
        return try root.parseAsRoot(arguments)
    }
}

public import ArgumentParser

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

    /// Goes straight to the subcommand. Through the root command the parser would first set up every subcommand and
    /// the completion scripts, which takes as long as listing a file does.
    public static func run<Root: AsyncParsableCommand>(_ root: Root.Type) async {
        let arguments = Array(CommandLine.arguments.dropFirst())
        let named = root.configuration.subcommands.first { $0.configuration.commandName == arguments.first }
        if let subcommand = named as? any AsyncParsableCommand.Type {
            await subcommand.main(Array(arguments.dropFirst()))
        } else {
            await root.main()
        }
    }
}

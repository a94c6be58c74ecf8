import ArgumentParser

@main
enum Main {
    /// Goes straight to the subcommand. Through the root command the parser would first set up every subcommand and
    /// the completion scripts, which takes as long as listing a file does.
    static func main() async {
        let arguments = Array(CommandLine.arguments.dropFirst())
        let named = Certprov.configuration.subcommands.first { $0.configuration.commandName == arguments.first }
        if let subcommand = named as? any AsyncParsableCommand.Type {
            await subcommand.main(Array(arguments.dropFirst()))
        } else {
            await Certprov.main()
        }
    }
}

struct Certprov: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "certprov",
        abstract: "Get the X.509 identity that a service needs for mutual TLS, from wherever it is kept.",
        discussion: "Results go to stdout, everything else to stderr. Secrets are never taken from the command line.",
        version: "0.1.0",
        subcommands: [
            List.self, Fetch.self, Delete.self, Explain.self, Connect.self, Providers.self, Check.self,
        ])
}

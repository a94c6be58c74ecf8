import ArgumentParser

/// The command `contracts`.
struct ContractsCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "contracts", abstract: "Sign contracts at this host.",
        discussion: """
            Contracts come from programs beside this one and from the server that the host is paired with. They are signed here, also \
            without a connection, and go back. Results go to stdout, everything else to stderr.
            """,
        version: "0.1.0",
        subcommands: [
            PairCommand.self, SyncCommand.self, SignCommand.self, ResolveCommand.self, UnpairCommand.self,
            ListCommand.self, ShowCommand.self, CompleteCommand.self, AbandonCommand.self, OpenCommand.self,
            InstallHandlerCommand.self,
        ])
}

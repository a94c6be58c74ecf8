import ArgumentParser

@main
struct ContractServerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "contract-server", abstract: "The reference server of contracts.",
        discussion: "Its files, its log and its notifier are described by: contract-server serve --help",
        version: "0.1.0",
        subcommands: [ServeCommand.self])
}

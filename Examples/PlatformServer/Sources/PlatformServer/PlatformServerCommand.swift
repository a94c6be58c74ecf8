import ArgumentParser

@main
struct PlatformServerCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "platform-server",
        abstract: "A reference server for the registration of application connections.",
        subcommands: [ServeCommand.self, UserCommand.self], defaultSubcommand: ServeCommand.self)
}

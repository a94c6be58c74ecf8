import ArgumentParser

/// The subcommands for authors of plugins.
struct PluginCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "plugin",
        abstract: "For authors of plugins: verify one, or watch one at work.",
        subcommands: [PluginVerify.self, PluginTrace.self])
}

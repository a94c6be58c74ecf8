import ArgumentParser

/// The subcommands for authors of plugins.
struct PluginCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "plugin",
        abstract: "For authors of plugins: begin one, verify it, or watch it at work.",
        subcommands: [PluginNew.self, PluginVerify.self, PluginTrace.self])
}

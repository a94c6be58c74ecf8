import CertificateProviding
package import PluginProtocol

/// A plugin that was started and told nothing, for checks of how it speaks.
package final class PluginSession: Sendable {
    private let process: PluginProcess
    /// The plugin.
    package let peer: Peer

    init(
        _ program: PluginProgram, launcher: String, variables: [String], _ services: HostServices,
        _ processes: PluginProcesses, _ observer: PluginObserver?
    ) throws(ProviderError) {
        process = try processes.add { () throws(ProviderError) in
            try PluginProcess(
                program, launcher: launcher, environment: PluginLauncher.environment(with: variables), services,
                observer: observer, onLoss: { _, _ in }, onEnd: { processes.remove($0) })
        }
        peer = try process.connect()
    }

    /// Ends the plugin's input, and waits for its end.
    ///
    /// - Returns: Whether it has ended by itself.
    package func end() async -> Bool {
        process.end(
            ProviderError(.operationNotAllowed, "The check of the plugin is over."))
        await process.waitForEnd()
        return process.hasEndedByItself
    }
}

import CertificateProviding
import Logon
import PluginHost

/// An installed plugin, as the command shows it.
struct ListedPlugin: Sendable {
    let id: ProviderID
    let path: String
    var description: PluginDescription?
    var provider: ProviderDescriptor?
    var keyStores: [KeyStoreDescriptor] = []
    /// Why it is not used.
    var error: ProviderError?

    /// The path and the versions.
    var origin: String {
        let version = description?.version.map { ", version \($0)" } ?? ""
        return "\(path.withVisibleControls)\(version), protocol \(description?.protocolVersion ?? 0)"
    }

    /// Asks a plugin for its description. Blocks.
    ///
    /// - Parameter configured: What the property file says for it.
    private init(_ plugin: InstalledPlugin, of host: PluginHost, _ configured: ProviderParameters) {
        (id, path) = (plugin.id, plugin.path)
        do throws(ProviderError) {
            description = try host.describeAnew(id, configured)
            provider = try host.provider(id, ProviderParameters())
            for scheme in description?.schemes ?? [] {
                guard let store = try host.keyStore(scheme, ProviderParameters()), store.id == id else {
                    throw ProviderError(
                        .configurationInvalid,
                        "The scheme '\(scheme):' of the plugin '\(id)' belongs to another plugin, which has this name; remove "
                            + "one of the two.", provider: id)
                }
                keyStores.append(store)
            }
        } catch { self.error = error }
    }

    /// Asks all installed plugins for their descriptions, at the same time.
    static func all(
        of host: PluginHost, _ configured: @escaping @Sendable (ProviderID) -> ProviderParameters
    ) async -> [ListedPlugin] {
        let threads = BlockingExecutor.threads()
        return await withTaskGroup(of: ListedPlugin.self) { tasks in
            for plugin in host.installed {
                tasks.addTask {
                    await withCheckedContinuation { continuation in
                        threads.submit {
                            continuation.resume(returning: ListedPlugin(plugin, of: host, configured(plugin.id)))
                        }
                    }
                }
            }
            var all: [ListedPlugin] = []
            for await plugin in tasks { all.append(plugin) }
            return all.sorted { $0.id < $1.id }
        }
    }
}

extension CommandContext {
    /// Returns the plugins of this host, and of the directory that the property file names. Adds remarks about files there
    /// that have no plugin's name.
    ///
    /// - Throws: Errors of the file of `--config`.
    func installedPlugins() async throws(ProviderError) -> [ListedPlugin] {
        let lookup = ConfigurationLookup(options: options, registry: registry)
        let host = try lookup.pluginDirectory().map(plugins.searching) ?? plugins
        for (path, reason) in host.misnamed { remark("\(path.withVisibleControls) is not used: \(reason)") }
        return await ListedPlugin.all(of: host, lookup.pluginParameters())
    }
}

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
    var error: CertificateProviderError?

    /// Where it is, and its versions.
    var origin: String {
        let version = description?.version.map { ", version \($0)" } ?? ""
        return "\(path.withVisibleControls)\(version), protocol \(description?.protocolVersion ?? 0)"
    }

    /// Asks a plugin for its description.
    init(_ plugin: InstalledPlugin, of host: PluginHost) {
        (id, path) = (plugin.id, plugin.path)
        do throws(CertificateProviderError) {
            description = try host.describeAnew(id)
            provider = try host.provider(id, ProviderParameters())
            for scheme in description?.schemes ?? [] {
                guard let store = try host.keyStore(scheme, ProviderParameters()), store.storageID == id else {
                    throw CertificateProviderError(
                        .configurationInvalid,
                        "The scheme '\(scheme):' of the plugin '\(id)' belongs to another plugin, which has this name; remove "
                            + "one of the two.", provider: id)
                }
                keyStores.append(store)
            }
        } catch { self.error = error }
    }
}

extension CommandContext {
    /// Returns the plugins of this host, and of the directory that the property file names. Adds remarks about files there
    /// that have no plugin's name.
    ///
    /// - Throws: Errors of the file of `--config`.
    func installedPlugins() throws(CertificateProviderError) -> [ListedPlugin] {
        let directory = try ConfigurationLookup(options: options, registry: registry).pluginDirectory()
        let host = directory.map(plugins.searching) ?? plugins
        for (path, reason) in host.misnamed { remark("\(path.withVisibleControls) is not used: \(reason)") }
        return host.installed.map { ListedPlugin($0, of: host) }
    }
}

import CertificateProviding
import Logon

/// Finds the configuration for a command, from its options, the environment or the standard paths.
struct ConfigurationLookup {
    let options: GlobalOptions
    let registry: ProviderRegistry
    /// Whether options can take the place of a property file: a registration has more settings than a provider.
    var mayBeOptions = true
    var environment: (String) -> String? = PropertyFile.variable

    private var path: String? { PropertyFile.existing(named: options.config, environment) }

    /// - Throws: `configurationMissing` with the paths that were searched, `configurationInvalid`,
    ///   `noCertificateProvider`.
    func configuration() throws(ProviderError) -> LogonConfiguration {
        guard let provider = try requestedProvider() else { return try load() }
        let overrides = parameters()
        if options.isComplete {
            return LogonConfiguration(providers: [ConfiguredProvider(id: provider, parameters: overrides)])
        }
        var configuration = try load()
        // If the policy uses no provider, the manager says so: whether this one is listed does not matter.
        guard configuration.userCreationPolicy == .certificate else { return configuration }
        guard var chosen = configuration.providers.first(where: { $0.id == provider }) else {
            throw ProviderError(
                .noCertificateProvider,
                "\((configuration.path ?? "The property file").withVisibleControls) does not list the provider '\(provider)' in "
                    + "CertificateProvider.", provider: provider)
        }
        for name in overrides.names { chosen.parameters[name] = overrides[name] }
        configuration.providers = [chosen]
        return configuration
    }

    /// Returns the property file's content; an empty configuration if there is no file.
    func configurationIfAny() throws(ProviderError) -> LogonConfiguration {
        path == nil ? LogonConfiguration() : try load()
    }

    private func load() throws(ProviderError) -> LogonConfiguration {
        guard let path else {
            throw ProviderError(
                .configurationMissing,
                "No property file was found. Looked for \(PropertyFile.searched(environment)). Name one with --config"
                    + (mayBeOptions ? ", or configure a provider with --provider and --set." : "."))
        }
        return try LogonConfiguration.load(path: path, registry: registry)
    }

    private func requestedProvider() throws(ProviderError) -> ProviderID? {
        guard let name = options.drivenProvider else { return nil }
        // Also a plugin of the directory that the property file names, if that is read.
        let registry = try (options.isComplete ? nil : pluginDirectory()).map(registry.looking) ?? registry
        let installed = registry.providerIDs
        // One that is there, and is not used, has an error that says why.
        guard let id = ProviderID(rawValue: name),
            try installed.contains(id) ? true : registry.provider(id, ProviderParameters()) != nil
        else {
            throw ProviderError(
                .configurationInvalid,
                "The provider '\(name.withVisibleControls)' is not installed; installed: "
                    + installed.map(\.rawValue).joined(separator: ", ")
                    + (registry.whereabouts.map { "; \($0)." } ?? "."))
        }
        return id
    }

    /// Returns the directory of plugins that the property file names, whatever else that says; `nil` for none. A file that
    /// `--config` does not name may be damaged.
    func pluginDirectory() throws(ProviderError) -> String? {
        guard let path else { return nil }
        do throws(ProviderError) { return try LogonConfiguration.pluginDirectory(path: path) } catch {
            if options.config == nil { return nil }
            throw error
        }
    }

    /// Returns what the property file says for each plugin, whatever else that says; nothing if it cannot be read.
    func pluginParameters() -> @Sendable (ProviderID) -> ProviderParameters {
        guard let path,
            let parameters = try? LogonConfiguration.pluginParameters(path: path)
        else { return { _ in ProviderParameters() } }
        return parameters
    }

    private func parameters() -> ProviderParameters {
        var parameters = ProviderParameters()
        for option in options.drivenParameters {
            let parts = option.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            parameters[String(parts[0])] = .init(String(parts[1]), origin: "--set")
        }
        return parameters
    }
}

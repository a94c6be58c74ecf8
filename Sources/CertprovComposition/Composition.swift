package import CertificateProviding
package import FoundationEssentials
package import IdentityStore
package import Logging
package import Logon
package import PluginHost
package import ProviderTransport

/// The one place where the parts of certprov are put together: providers, key stores, plugins, storage and managers.
///
/// ``CertprovLogon`` and the command pass in what differs: threads, network, clock, log.
package struct Composition: Sendable {
    package typealias Vaults =
        @Sendable (_ applicationID: String, PasscodePolicy) throws(ProviderError) -> DataVault

    package let plugins: PluginHost
    /// The built-in parts, and those of the plugins.
    package let registry: ProviderRegistry
    package let secrets: SecretReader
    package var executor: BlockingExecutor
    package var logger: Logger
    package let now: @Sendable () -> Date
    private let transport: Transport
    private let sleep: (@Sendable (Duration) async throws -> Void)?
    private let ownStore: IdentityStore?
    private let ownVaults: Vaults?

    /// The part for cached descriptions of plugins. No plugin may have a name that ends so.
    private static let pluginStorage = ProviderID("plugins_")

    /// Reads and starts nothing.
    ///
    /// - Parameters:
    ///   - store: `nil` for that of the host, which the environment names.
    ///   - vaults: `nil` for those of the host.
    ///   - sleep: Waits between two looks at a provider's files.
    ///   - observer: Gets what plugins and this process say to each other.
    /// - Throws: `configurationInvalid` for two providers or key stores of the same name.
    package init(
        _ builtIns: BuiltIns, secrets: SecretReader = SecretReader(), store: IdentityStore? = nil,
        vaults: Vaults? = nil, executor: BlockingExecutor, transport: Transport = Transport(), logger: Logger,
        now: @escaping @Sendable () -> Date = { Date() },
        sleep: (@Sendable (Duration) async throws -> Void)? = nil, observer: (@Sendable (PluginEvent) -> Void)? = nil
    ) throws(ProviderError) {
        plugins = builtIns.plugins(
            logger: logger,
            cache: { () throws(ProviderError) in
                try Self.store(store, secrets).storage(for: Self.pluginStorage)
            }, observer: observer)
        registry = try ProviderRegistry(
            builtIns.providers, keyStores: builtIns.keyStores, sections: builtIns.sections, source: plugins)
        (ownStore, ownVaults) = (store, vaults)
        self.secrets = secrets
        (self.executor, self.transport, self.logger, self.now) = (executor, transport, logger, now)
        self.sleep = sleep
    }

    /// Returns the identity store of this host.
    ///
    /// - Throws: As ``/IdentityStore/IdentityStore/standard(secrets:)``.
    package func store() throws(ProviderError) -> IdentityStore { try Self.store(ownStore, secrets) }

    private static func store(
        _ own: IdentityStore?, _ secrets: SecretReader
    ) throws(ProviderError) -> IdentityStore {
        if let own { return own }
        return try .standard(secrets: secrets)
    }

    private func vault(_ settings: RegistrationSettings) throws(ProviderError) -> DataVault? {
        guard let id = settings.applicationID else { return nil }
        if let ownVaults { return try ownVaults(id, settings.passcodePolicy) }
        return try .standard(applicationID: id, policy: settings.passcodePolicy, secrets: secrets)
    }

    /// Returns the manager of a configuration, and the vault of its application, which is not touched; `nil` if it has none.
    ///
    /// - Parameter onRead: Gets the ``/IdentityStore/StoreEntry/path`` of each entry of the store, outside of the vault, that its
    ///   providers ask for.
    /// - Throws: As ``/Logon/LogonManager/init(configuration:registry:clock:vault:transport:secrets:executor:now:environment:)``,
    ///   and errors of this host's store.
    package func manager(
        _ configuration: LogonConfiguration, onRead: (@Sendable (String) -> Void)? = nil
    ) throws(ProviderError) -> (manager: LogonManager, vault: DataVault?) {
        // Data of an application is in its vault, once it is registered.
        let store = try store()
        let vault = try vault(configuration.registration)
        let manager = try LogonManager(
            configuration: configuration, registry: registry, vault: vault, transport: transport, secrets: secrets,
            executor: executor, now: now
        ) { [self, path = configuration.path] id in
            environment(vault?.storage(for: id) ?? store.storage(for: id, storedWith: path, onRead: onRead))
        }
        return (manager, vault)
    }

    /// Returns the environment with a part of an identity store.
    package func environment(_ storage: any IdentityStorage) -> ProviderEnvironment {
        var environment = ProviderEnvironment(
            storage: storage, secrets: secrets, logger: logger, now: now, executor: executor)
        environment.transport = transport
        if let sleep { environment.sleep = sleep }
        return environment
    }
}

public import FoundationEssentials
public import Logging

/// Names a service that a module adds to ``ProviderEnvironment``.
package protocol ProviderEnvironmentKey {
    /// The type of the service.
    associatedtype Value: Sendable
    /// The service of an environment that was given none.
    static var defaultValue: Value { get }
}

/// The services that a provider gets when it is created: storage, secrets, clock, logger and threads.
public struct ProviderEnvironment: Sendable {
    /// The provider's own part of this host's identity store.
    public var storage: any IdentityStorage
    /// Reads the secrets that parameters name.
    public var secrets: SecretReader
    /// The log of the provider.
    public var logger: Logger
    /// The wall clock; replaceable in tests.
    public var now: @Sendable () -> Date
    /// Runs calls that block.
    public var executor: BlockingExecutor
    /// Waits, between two looks at a file say; replaceable in tests. Throws if the task is cancelled.
    public var sleep: @Sendable (Duration) async throws -> Void = { try await Task.sleep(for: $0) }
    /// Makes the key stores that URIs name.
    public var keyStores: KeyStores
    private var services: [ObjectIdentifier: any Sendable] = [:]

    /// A service that another module adds, such as the network of ProviderTransport: `environment.transport`.
    package subscript<Key: ProviderEnvironmentKey>(_ key: Key.Type) -> Key.Value {
        get { services[ObjectIdentifier(key)] as? Key.Value ?? Key.defaultValue }
        set { services[ObjectIdentifier(key)] = newValue }
    }

    /// Creates an environment.
    public init(
        storage: any IdentityStorage, secrets: SecretReader = SecretReader(), logger: Logger,
        now: @escaping @Sendable () -> Date = { Date() }, executor: BlockingExecutor,
        keyStores: KeyStores = .none
    ) {
        self.storage = storage
        self.secrets = secrets
        self.logger = logger
        self.now = now
        self.executor = executor
        self.keyStores = keyStores
    }
}

extension ProviderEnvironment {
    /// Reads a secret from its source on ``executor``, or asks the user for ``SecretSource/prompt``.
    ///
    /// - Throws: As ``SecretReader/read(_:)`` and ``UserInteraction/requestSecret(_:)``.
    public func secret(
        from source: SecretSource, prompt: String, interaction: any UserInteraction
    ) async throws(ProviderError) -> SecretBytes {
        if source == .prompt { return try await interaction.requestSecret(prompt) }
        let (secrets, logger) = (secrets, logger)
        return try await executor.run { () throws(ProviderError) in
            if let warning = secrets.warning(about: source) { logger.warning("\(warning)") }
            return try secrets.read(source)
        }
    }
}

public import CertificateProviding
public import FoundationEssentials
public import IdentityStore
public import ProviderTransport

/// Chooses a provider and gets the identity from it.
///
/// Providers are asked in the configured order. A stored identity is used before any provider is asked for a new one; a
/// provider that cannot tell whether it has one ends the operation. When a new identity is requested, `notFound`,
/// `tokenNotPresent` and `unavailable` continue with the next provider. Every other error ends the operation and is
/// reported unchanged, so that a rejected PIN or password never silently selects another provider.
///
/// Only one operation that changes something or asks a provider may run at a time: a second one throws
/// `operationNotAllowed` at once. A cancelled operation ends as soon as its provider notices. ``storedIdentity()`` may
/// be called at any time. All functions may be called from any thread.
///
/// Without a provider (none configured, or a `UserCreationPolicy` that uses none), every request throws
/// `noCertificateProvider`.
public final class LogonManager: Sendable {
    /// The configuration that the manager was created with.
    public let configuration: LogonConfiguration
    /// The providers in the order in which they are asked.
    package let providers: [any CertificateProvider]
    /// The key stores, as the providers get them.
    package let keyStores: KeyStores
    let sequence: ProviderSequence
    let operations: Operations
    /// The current time.
    let now: @Sendable () -> Date
    /// `nil` for a host that registers no application.
    let registration: Registration?
    /// For a replacement.
    let registry: ProviderRegistry
    let executor: BlockingExecutor
    let environment: ProviderRegistry.Surroundings

    /// Creates the configured providers and sets their parameters.
    ///
    /// - Parameters:
    ///   - registry: The installed providers.
    ///   - clock: Measures the duration of decisions.
    ///   - vault: That of the application, for its registration; `nil` for none. The environments of the providers must have
    ///     its parts as their storage (``/IdentityStore/DataVault/storage(for:)``).
    ///   - transport: The network of requests to the platform server.
    ///   - secrets: Reads the passcode and the password, where the configuration names their sources.
    ///   - executor: Runs what blocks for the vault.
    ///   - now: Returns the current time.
    ///   - environment: Returns the environment of the provider with this id.
    /// - Throws: `configurationInvalid` for a provider that is not installed or is configured twice, errors of
    ///   `environment`, and errors of a provider about its parameters.
    public convenience init(
        configuration: LogonConfiguration, registry: ProviderRegistry,
        clock: some Clock<Duration> = ContinuousClock(), vault: DataVault? = nil, transport: Transport = Transport(),
        secrets: SecretReader = SecretReader(), executor: BlockingExecutor = .threads(),
        now: @escaping @Sendable () -> Date = { Date() },
        environment: @escaping @Sendable (ProviderID) throws(ProviderError) -> ProviderEnvironment
    ) throws(ProviderError) {
        let start = clock.now
        try self.init(
            configuration, registry, replacing: nil, Operations(),
            vault.map { Registrar($0, transport, secrets, executor, now: now) }, executor,
            uptime: { start.duration(to: clock.now) }, now: now, environment)
        registration?.vault.takeOver()
    }

    /// - Parameter old: Its providers are used again, where their parameters are the same.
    init(
        _ configuration: LogonConfiguration, _ registry: ProviderRegistry, replacing old: LogonManager?,
        _ operations: Operations, _ registrar: Registrar?, _ executor: BlockingExecutor,
        uptime: @escaping @Sendable () -> Duration, now: @escaping @Sendable () -> Date,
        _ environment: @escaping ProviderRegistry.Surroundings
    ) throws(ProviderError) {
        (self.registry, self.executor, self.environment) = (registry, executor, environment)
        let registry = configuration.pluginDirectory.map(registry.looking) ?? registry
        let environment = registrar?.unlocking(environment) ?? environment
        keyStores = try registry.keyStores(configuration.keyStores, in: environment)
        sequence = try ProviderSequence(configuration, registry, keyStores, in: environment, uptime: uptime) {
            old?.made(for: $0, of: configuration)
        }
        providers = sequence.all
        if let registrar {
            let key = try VaultKey(configuration, registrar, registry, in: environment)
            registration = Registration(configuration, registrar, sequence, operations, key)
        } else {
            registration = nil
        }
        (self.configuration, self.operations, self.now) = (configuration, operations, now)
    }

    /// Returns the environment of a part of the program, as providers get theirs: with that part of the identity store, or of the
    /// application's vault, which is unlocked where that needs no user, and with the key stores. A program keeps its own sealed
    /// records there.
    ///
    /// - Parameter part: No provider may have this id.
    /// - Throws: Errors of this host's store.
    public func environment(of part: ProviderID) throws(ProviderError) -> ProviderEnvironment {
        var own = try (registration?.registrar.unlocking(environment) ?? environment)(part)
        own.keyStores = keyStores
        return own
    }

    /// The steps of the last operation. ``explain()`` does not count as one.
    package var decisions: [Decision] { operations.decisions }

    /// Closes the providers' open resources, such as the sessions of a token. Call it before the program ends: some
    /// devices support few sessions and do not release unclosed ones. Takes a few seconds at most. Afterwards every use
    /// of a token throws `operationNotAllowed`.
    public func shutdown() async {
        registration?.registrar.forgetConnections()
        async let isClosed: Void? = registration?.registrar.closeKeyStore()
        await sequence.shutdown()
        await isClosed
    }
}

extension LogonManager {
    /// Checks that there is a provider.
    ///
    /// - Throws: `noCertificateProvider`, with the setting to change.
    package func requireProviders() throws(ProviderError) {
        guard providers.isEmpty else { return }
        let place = configuration.path.map { "\($0.withVisibleControls): " } ?? ""
        let policy = configuration.userCreationPolicy
        throw ProviderError(
            .noCertificateProvider,
            policy == .certificate
                ? "\(place)No certificate provider is configured; set CertificateProvider to one or more ids."
                : "\(place)UserCreationPolicy is \(policy.rawValue): the application registers by a password, with 'certprov register', and "
                    + "no provider is asked. For an identity of a provider, set it to certificate.")
    }

    /// Returns the providers that count: while the application is registered, the one that registered, and no other.
    ///
    /// - Throws: `noCertificateProvider`, `vaultLocked`, `storeReadFailed`.
    package func activeProviders() async throws(ProviderError) -> [any CertificateProvider] {
        try requireProviders()
        return try await unlocked { () throws(ProviderError) in try await candidates() }
    }

    /// As ``activeProviders()``, for a vault that is unlocked.
    func candidates() async throws(ProviderError) -> [any CertificateProvider] {
        try await registration?.candidates() ?? providers
    }

    /// Runs an operation with the vault unlocked, if there is one and that needs no user.
    func unlocked<T>(
        _ operation: () async throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        guard let registration else { return try await operation() }
        return try await registration.vault.unlocked(operation)
    }

    /// Runs an operation that asks the providers, and no other at the same time.
    func exclusively<T>(
        _ operation: (inout DecisionLog) async throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        try requireProviders()
        try operations.begin()
        var log = sequence.log()
        defer {
            operations.keep(log)
            operations.end()
        }
        return try await unlocked { () throws(ProviderError) in try await operation(&log) }
    }

    func stored(_ log: inout DecisionLog) async throws(ProviderError) -> Identity? {
        try await sequence.stored(of: try await candidates(), &log)
    }

    func obtain(
        _ interaction: any UserInteraction, _ log: inout DecisionLog, checking check: ProviderCheck = { _ in }
    ) async throws(ProviderError) -> Identity {
        try await sequence.obtain(from: try await candidates(), interaction, &log, checking: check)
    }
}

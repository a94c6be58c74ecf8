public import CertificateProviding
import Synchronization

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
/// Without a provider (none configured, or a ``UserCreationPolicy`` that uses none), every request throws
/// `noCertificateProvider`.
public final class LogonManager: Sendable {
    /// The configuration that the manager was created with.
    public let configuration: LogonConfiguration
    /// The providers in the order in which they are asked.
    public let providers: [any CertificateProvider]
    /// The key stores, as the providers get them.
    public let keyStores: KeyStores

    struct State {
        var isBusy = false
        var decisions: [Decision] = []
    }
    let state = Mutex(State())
    let executors: [ProviderID: BlockingExecutor]
    let renewalPolicies: [ProviderID: RenewalPolicy]
    let uptime: @Sendable () -> Duration

    /// Creates the configured providers and sets their parameters.
    ///
    /// - Parameters:
    ///   - registry: The installed providers.
    ///   - clock: Measures the duration of decisions.
    ///   - environment: Returns the environment of the provider with this id.
    /// - Throws: `configurationInvalid` for a provider that is not installed or is configured twice, errors of
    ///   `environment`, and errors of a provider about its parameters.
    public init(
        configuration: LogonConfiguration, registry: ProviderRegistry,
        clock: some Clock<Duration> = ContinuousClock(),
        environment: @escaping @Sendable (ProviderID) throws(CertificateProviderError) -> ProviderEnvironment
    ) throws(CertificateProviderError) {
        var providers: [any CertificateProvider] = []
        var executors: [ProviderID: BlockingExecutor] = [:]
        var renewalPolicies: [ProviderID: RenewalPolicy] = [:]
        let registry = configuration.pluginDirectory.map(registry.looking) ?? registry
        let keyStores = try registry.keyStores(configuration.keyStores, in: environment)
        for configured in configuration.providers where configuration.userCreationPolicy == .certificate {
            let id = configured.id
            guard executors[id] == nil else {
                throw CertificateProviderError(
                    .configurationInvalid, "The provider '\(id)' is configured twice.", provider: id)
            }
            do throws(CertificateProviderError) {
                renewalPolicies[id] = RenewalPolicy(point: try configured.parameters.renewalPoint(provider: id))
                let (provider, executor) = try registry.provider(
                    id, configured.parameters, keyStores, in: environment)
                providers.append(provider)
                executors[id] = executor
            } catch {
                throw error.attributed(to: id)
            }
        }
        self.configuration = configuration
        self.keyStores = keyStores
        self.providers = providers
        self.executors = executors
        self.renewalPolicies = renewalPolicies
        let start = clock.now
        self.uptime = { start.duration(to: clock.now) }
    }

    /// The steps of the last operation. ``explain()`` does not count as one.
    public var decisions: [Decision] { state.withLock { $0.decisions } }

    /// Closes the providers' open resources, such as the sessions of a token. Call it before the program ends: some
    /// devices support few sessions and do not release unclosed ones. Takes a few seconds at most. Afterwards every use
    /// of a token throws `operationNotAllowed`.
    public func shutdown() async {
        await withTaskGroup(of: Void.self) { tasks in
            for provider in providers { tasks.addTask { await provider.shutdown() } }
        }
    }
}

extension LogonManager {
    /// Checks that there is a provider.
    ///
    /// - Throws: `noCertificateProvider`, with the setting to change.
    package func requireProviders() throws(CertificateProviderError) {
        guard providers.isEmpty else { return }
        let place = configuration.path.map { "\($0.withVisibleControls): " } ?? ""
        let policy = configuration.userCreationPolicy
        throw CertificateProviderError(
            .noCertificateProvider,
            policy == .certificate
                ? "\(place)No certificate provider is configured; set CertificateProvider to one or more ids."
                : "\(place)UserCreationPolicy is \(policy.rawValue), so certificate providers are not used; "
                    + "set it to certificate.")
    }

    func begin() throws(CertificateProviderError) {
        let isFree = state.withLock { state in
            defer { state.isBusy = true }
            return !state.isBusy
        }
        guard isFree else {
            throw CertificateProviderError(
                .operationNotAllowed, "Another operation is in progress; wait until it has finished.")
        }
    }

    func exclusively<T>(
        _ operation: (inout DecisionLog) async throws(CertificateProviderError) -> T
    ) async throws(CertificateProviderError) -> T {
        try requireProviders()
        try begin()
        var log = DecisionLog(uptime: uptime)
        defer {
            state.withLock { state in
                state.isBusy = false
                state.decisions = log.decisions
            }
        }
        return try await operation(&log)
    }
}

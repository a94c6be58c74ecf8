public import CertificateProviding
import Synchronization

/// Chooses a provider and gets the identity from it; never issues anything itself.
///
/// Providers are asked in the configured order. A stored identity is taken before any provider is asked for a new one;
/// a provider that cannot look whether it has one stops. When a new one is asked for, `notFound`, `tokenNotPresent` and
/// `unavailable` move on to the next provider; every other error stops and is reported unchanged, so that a rejected
/// PIN or password is never a reason to try elsewhere in silence.
///
/// One operation that changes anything or asks a provider may run at a time: a second one throws
/// `operationNotAllowed` at once. The manager is free again when the first has returned or failed; a cancelled one
/// fails as soon as its provider notices. ``storedIdentity()`` may be called at any time. All may be called from any
/// thread.
///
/// Without a provider (none configured, or a ``UserCreationPolicy`` that uses none), every request throws
/// `noCertificateProvider`.
public final class LogonManager: Sendable {
    public let configuration: LogonConfiguration
    /// In the order in which they are asked.
    public let providers: [any CertificateProvider]

    struct State {
        var isBusy = false
        var decisions: [Decision] = []
    }
    let state = Mutex(State())
    let executors: [ProviderID: BlockingExecutor]
    let renewalPolicies: [ProviderID: RenewalPolicy]
    let uptime: @Sendable () -> Duration

    /// Makes the configured providers and gives them their parameters.
    ///
    /// - Parameters:
    ///   - registry: The installed providers.
    ///   - clock: Measures how long decisions take.
    ///   - environment: Returns what the provider of that id is given.
    /// - Throws: `configurationInvalid` for a provider that is not installed or is named twice, what `environment`
    ///   throws, and what a provider says of its parameters.
    public init(
        configuration: LogonConfiguration, registry: ProviderRegistry,
        clock: some Clock<Duration> = ContinuousClock(),
        environment: @escaping @Sendable (ProviderID) throws(CertificateProviderError) -> ProviderEnvironment
    ) throws(CertificateProviderError) {
        var providers: [any CertificateProvider] = []
        var executors: [ProviderID: BlockingExecutor] = [:]
        var renewalPolicies: [ProviderID: RenewalPolicy] = [:]
        for configured in configuration.providers where configuration.userCreationPolicy == .certificate {
            let id = configured.id
            guard executors[id] == nil else {
                throw CertificateProviderError(
                    .configurationInvalid, "The provider '\(id)' is configured twice.", provider: id)
            }
            do throws(CertificateProviderError) {
                renewalPolicies[id] = RenewalPolicy(point: try configured.parameters.renewalPoint(provider: id))
                let (provider, executor) = try registry.provider(id, configured.parameters, in: environment)
                providers.append(provider)
                executors[id] = executor
            } catch {
                throw error.attributed(to: id)
            }
        }
        self.configuration = configuration
        self.providers = providers
        self.executors = executors
        self.renewalPolicies = renewalPolicies
        let start = clock.now
        self.uptime = { start.duration(to: clock.now) }
    }

    /// How the last operation came to its result. ``explain()`` does not count as one.
    public var decisions: [Decision] { state.withLock { $0.decisions } }

    /// Closes what the providers hold open, such as the sessions with a token. Call it before the program ends: a device
    /// may have only a few sessions, and keep those that are not closed. Takes a few seconds at most. Afterwards every
    /// use of a token throws `operationNotAllowed`.
    public func shutdown() async {
        await withTaskGroup(of: Void.self) { tasks in
            for provider in providers { tasks.addTask { await provider.shutdown() } }
        }
    }
}

extension LogonManager {
    /// - Throws: `noCertificateProvider`, with what to set, when there is no provider to ask.
    package func requireProviders() throws(CertificateProviderError) {
        guard providers.isEmpty else { return }
        let place = configuration.path.map { "\($0.withVisibleControls): " } ?? ""
        let policy = configuration.userCreationPolicy
        throw CertificateProviderError(
            .noCertificateProvider,
            policy == .certificate
                ? "\(place)No certificate provider is configured; set CertificateProvider to one or more ids."
                : "\(place)UserCreationPolicy is \(policy.rawValue), with which no certificate provider is used; "
                    + "set it to certificate.")
    }

    func begin() throws(CertificateProviderError) {
        let isFree = state.withLock { state in
            defer { state.isBusy = true }
            return !state.isBusy
        }
        guard isFree else {
            throw CertificateProviderError(
                .operationNotAllowed, "Another operation is going on; wait until it has ended.")
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

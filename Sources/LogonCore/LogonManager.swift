public import CertificateProviding
import Synchronization

/// Chooses a provider and gets the identity from it; never issues anything itself.
///
/// Providers are asked in the configured order. A stored identity is taken before any provider is asked for a new one.
/// "None stored", `notFound`, `tokenNotPresent` and `unavailable` move on to the next provider; every other error stops
/// and is reported unchanged, so that a rejected PIN or password is never a reason to try elsewhere in silence.
///
/// One operation that changes anything or asks a provider may run at a time: a second one throws
/// `operationNotAllowed` at once. The manager is free again when the first has returned or failed; a cancelled one fails
/// as soon as its provider notices. ``storedIdentity()`` may be called at any time. All may be called from any thread.
///
/// Without a provider (none configured, or a ``UserCreationPolicy`` that uses none), every request throws
/// `noCertificateProvider`.
public final class LogonManager: Sendable {
    public let configuration: LogonConfiguration
    /// In the order in which they are asked.
    public let providers: [any CertificateProvider]

    private struct State {
        var isBusy = false
        var decisions: [Decision] = []
    }
    private let state = Mutex(State())
    let executors: [ProviderID: BlockingExecutor]
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
        environment: (ProviderID) throws(CertificateProviderError) -> ProviderEnvironment
    ) throws(CertificateProviderError) {
        var providers: [any CertificateProvider] = []
        var executors: [ProviderID: BlockingExecutor] = [:]
        for configured in configuration.providers where configuration.userCreationPolicy == .certificate {
            let id = configured.id
            guard let descriptor = registry[id] else {
                let installed = registry.descriptors.map(\.id.rawValue).joined(separator: ", ")
                throw CertificateProviderError(
                    .configurationInvalid, "There is no provider '\(id)'; installed: \(installed).", provider: id)
            }
            guard executors[id] == nil else {
                throw CertificateProviderError(
                    .configurationInvalid, "The provider '\(id)' is configured twice.", provider: id)
            }
            do throws(CertificateProviderError) {
                let surroundings = try environment(id)
                let provider = descriptor.makeProvider(surroundings)
                guard provider.id == id else {
                    throw CertificateProviderError(.internal, "The provider '\(id)' calls itself '\(provider.id)'.")
                }
                try provider.setParameters(configured.parameters)
                providers.append(provider)
                executors[id] = surroundings.executor
            } catch {
                throw error.attributed(to: id)
            }
        }
        self.configuration = configuration
        self.providers = providers
        self.executors = executors
        let start = clock.now
        self.uptime = { start.duration(to: clock.now) }
    }

    /// How the last operation came to its result. ``explain()`` does not count as one.
    public var decisions: [Decision] { state.withLock { $0.decisions } }
}

// MARK: - One at a time

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

    private func begin() throws(CertificateProviderError) {
        let isFree = state.withLock { state in
            defer { state.isBusy = true }
            return !state.isBusy
        }
        guard isFree else {
            throw CertificateProviderError(
                .operationNotAllowed, "Another operation is going on; wait until it has ended.")
        }
    }

    private func exclusively<T>(
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

// MARK: - Operations

extension LogonManager {
    /// Returns the first stored identity, or `nil` when no provider has one. No network and no prompt; reads a few
    /// small files at most.
    ///
    /// - Throws: The first error, of a provider that could not look.
    public func storedIdentity() throws(CertificateProviderError) -> Identity? {
        try requireProviders()
        var log = DecisionLog(uptime: uptime)
        defer { state.withLock { $0.decisions = log.decisions } }
        for (index, provider) in providers.enumerated() {
            let start = uptime()
            let result = Result { () throws(CertificateProviderError) in try provider.getStoredCertificate() }
            if let identity = try log.take(result, of: provider, before: providers[(index + 1)...], since: start) {
                return identity
            }
        }
        return nil
    }

    /// Returns the first stored identity, and obtains one when there is none.
    ///
    /// - Throws: As ``storedIdentity()`` and ``obtainIdentity(_:)``.
    public func identity(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        try await exclusively { log throws(CertificateProviderError) in
            if let identity = try await self.stored(&log) { return identity }
            return try await self.obtain(interaction, &log)
        }
    }

    /// Asks the providers for a new identity, whatever is stored. The one that answers replaces its stored identity;
    /// when none does, what was stored still is.
    ///
    /// - Throws: The error that stopped, unchanged. When every provider moved on: the error of the only one, or else
    ///   one with the code of the most preferred that lists what each said. `userCancelled` when the task is cancelled
    ///   between two providers.
    public func obtainIdentity(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        try await exclusively { log throws(CertificateProviderError) in try await self.obtain(interaction, &log) }
    }

    /// Forgets the stored identities, then obtains a new one.
    ///
    /// A deletion that fails stops, and no new identity is asked for. The most preferred provider is the last to
    /// forget, so that its identity is still there then. When no new one is obtained, there is none.
    ///
    /// - Throws: What a provider says about deleting; as ``obtainIdentity(_:)``.
    public func updateCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity
    {
        try await exclusively { log throws(CertificateProviderError) in
            for (index, provider) in self.providers.enumerated().reversed() {
                if let error = await self.delete(provider, &log) {
                    log.appendNotAsked(
                        self.providers[..<index].reversed(), .delete, because: "'\(provider.id)' could not delete")
                    throw error
                }
            }
            return try await self.obtain(interaction, &log)
        }
    }

    /// Forgets every stored identity. Goes on past a provider that fails.
    ///
    /// - Throws: The first error.
    public func deleteStoredCertificates() async throws(CertificateProviderError) {
        try await exclusively { log throws(CertificateProviderError) in
            var first: CertificateProviderError?
            for provider in self.providers {
                let error = await self.delete(provider, &log)
                first = first ?? error
            }
            if let first { throw first }
        }
    }

    /// Says which provider would be chosen now, and why, without asking any for an identity: what is stored is looked
    /// at, then what providers with ``/CertificateProviding/IdentityListing`` see. Prompts for nothing, changes nothing.
    ///
    /// - Throws: `noCertificateProvider`, `operationNotAllowed`. What providers throw is in the decisions.
    public func explain() async throws(CertificateProviderError) -> Explanation {
        try requireProviders()
        try begin()
        defer { state.withLock { $0.isBusy = false } }
        var log = DecisionLog(uptime: uptime)
        do throws(CertificateProviderError) {
            guard try await stored(&log) == nil else {
                let chosen = log.decisions.first { $0.outcome == .identity }?.provider
                return Explanation(chosen: chosen, decisions: log.decisions)
            }
        } catch {
            return Explanation(chosen: nil, decisions: log.decisions)
        }
        let chosen = await forecast(&log)
        return Explanation(chosen: chosen, decisions: log.decisions)
    }
}

package import CertificateProviding

/// Looks at a provider before it is asked for an identity. Throws if it is not to be asked.
package typealias ProviderCheck = (any CertificateProvider) async throws(ProviderError) -> Void

/// The configured providers, in the order in which they are asked. Each function asks them one thing, and records the results.
struct ProviderSequence: Sendable {
    let all: [any CertificateProvider]
    private let made: [ProviderID: MadeProvider]
    let uptime: @Sendable () -> Duration

    /// Creates the providers of a configuration.
    ///
    /// - Parameter known: Returns the one that was made for these parameters before.
    /// - Throws: `configurationInvalid` for a provider that is not installed or is configured twice, errors of
    ///   `environment`, and errors of a provider about its parameters.
    init(
        _ configuration: LogonConfiguration, _ registry: ProviderRegistry, _ keyStores: KeyStores,
        in environment: @escaping ProviderRegistry.Surroundings, uptime: @escaping @Sendable () -> Duration,
        known: (ConfiguredProvider) -> MadeProvider?
    ) throws(ProviderError) {
        var all: [any CertificateProvider] = []
        var made: [ProviderID: MadeProvider] = [:]
        for configured in configuration.providers where configuration.userCreationPolicy == .certificate {
            let id = configured.id
            guard made[id] == nil else {
                throw ProviderError(
                    .configurationInvalid, "The provider '\(id)' is configured twice; remove one of them.", provider: id
                )
            }
            do throws(ProviderError) {
                let one: MadeProvider
                if let same = known(configured) {
                    one = same
                } else {
                    one = try MadeProvider(configured, registry, keyStores, in: environment)
                }
                all.append(one.provider)
                made[id] = one
            } catch {
                var error = error.attributed(to: id)
                // A parameter that is missing has no line of its own.
                if let path = configuration.path, [.configurationInvalid, .unsupportedParameter].contains(error.code),
                    !error.message.contains(path.withVisibleControls)
                {
                    error.message = "\(path.withVisibleControls): \(error.message)"
                }
                throw error
            }
        }
        (self.all, self.made, self.uptime) = (all, made, uptime)
    }

    func log() -> DecisionLog { DecisionLog(uptime: uptime) }

    subscript(id: ProviderID) -> MadeProvider? { made[id] }

    /// Lets those be shut down with their last manager in whose place there are others.
    func markReplaced(by new: ProviderSequence) {
        for (id, one) in made where new.made[id] !== one { one.replace() }
    }

    /// Whether both have the same providers in the same order.
    func isSame(as other: ProviderSequence) -> Bool {
        all.map(\.id) == other.all.map(\.id) && made.allSatisfy { $1 === other.made[$0] }
    }

    /// Shuts the providers down at the same time.
    func shutdown() async {
        await withTaskGroup(of: Void.self) { tasks in
            for one in made.values { tasks.addTask { await one.shutdown() } }
        }
    }

    // MARK: - Steps

    /// The codes after which the next provider is tried: the provider has no identity, and its configuration is valid.
    static let fallthroughCodes: Set<ProviderError.Code> = [.notFound, .tokenNotPresent, .unavailable]

    /// Returns the first stored identity of these providers.
    func stored(
        of providers: [any CertificateProvider], _ log: inout DecisionLog
    ) async throws(ProviderError) -> Identity? {
        for (index, provider) in providers.enumerated() {
            let start = uptime()
            let result = await attempt(with: provider) { () throws(ProviderError) in
                try provider.getStoredCertificate()
            }
            if let identity = try log.take(result, of: provider, before: providers[(index + 1)...], since: start) {
                return identity
            }
        }
        return nil
    }

    /// Returns the identity of the first of these providers that obtains one.
    ///
    /// - Parameter check: Looks at each provider before it is asked. Its errors count as the provider's.
    func obtain(
        from providers: [any CertificateProvider], _ interaction: any UserInteraction, _ log: inout DecisionLog,
        checking check: ProviderCheck = { _ in }
    ) async throws(ProviderError) -> Identity {
        var failures: [ProviderError] = []
        for (index, provider) in providers.enumerated() {
            let rest = providers[(index + 1)...]
            guard !Task.isCancelled else {
                log.appendNotAsked(providers[index...], .get, because: "the operation was cancelled")
                throw ProviderError(
                    .userCancelled, "The operation was cancelled before '\(provider.id)' was asked.")
            }
            let start = uptime()
            do throws(ProviderError) {
                try await check(provider)
                let identity = try await provider.getCertificate(interaction)
                log.append(provider.id, .get, .identity, since: start)
                log.appendNotAsked(rest, .get, because: "'\(provider.id)' was chosen before")
                note(.issued, identity, of: provider)
                return identity
            } catch {
                let error = error.attributed(to: provider.id)
                note(.refused, nil, of: provider, error)
                // A provider whose request was cancelled may report "unavailable"; the next provider is not asked then.
                guard Self.fallthroughCodes.contains(error.code), !Task.isCancelled else {
                    log.append(provider.id, .get, .stopped, error: error, since: start)
                    log.appendNotAsked(rest, .get, because: "'\(provider.id)' failed before")
                    throw error
                }
                log.append(provider.id, .get, .movedOn, error: error, since: start)
                failures.append(error)
            }
        }
        throw Self.summary(of: failures)
    }

    private static func summary(of failures: [ProviderError]) -> ProviderError {
        guard let first = failures.first else {
            return ProviderError(
                .noCertificateProvider,
                "No certificate provider is configured; set CertificateProvider to one or more ids.")
        }
        guard failures.count > 1 else { return first }
        let said = failures.map { "\($0.provider.map(\.rawValue) ?? "?"): \($0.message) [\($0.code)]" }
        return ProviderError(
            first.code, "No provider has an identity. " + said.joined(separator: " "), underlying: first)
    }

    /// Returns the stored identity of one provider.
    func stored(
        of provider: any CertificateProvider, _ log: inout DecisionLog
    ) async throws(ProviderError) -> Identity? {
        try await stored(of: [provider], &log)
    }

    /// Returns whether the source of a provider's stored identity has another one.
    func hasUpdate(_ updates: any UpdateAnnouncing, of id: ProviderID) async -> Bool {
        guard let executor = made[id]?.executor else { return updates.hasUpdate() }
        return (try? await executor.run { () throws(ProviderError) in updates.hasUpdate() }) ?? false
    }

    /// Asks one provider for a new identity.
    ///
    /// - Parameters:
    ///   - reason: Why it is asked, for the log.
    ///   - obtain: Asks it.
    func obtain(
        from provider: any CertificateProvider, because reason: String? = nil, _ log: inout DecisionLog,
        _ obtain: () async throws(ProviderError) -> Identity
    ) async throws(ProviderError) -> Identity {
        let start = uptime()
        do throws(ProviderError) {
            let identity = try await obtain()
            log.append(provider.id, .get, .identity, reason: reason, since: start)
            note(.renewed, identity, of: provider)
            return identity
        } catch {
            let error = error.attributed(to: provider.id)
            note(.refused, nil, of: provider, error)
            log.append(provider.id, .get, .stopped, error: error, since: start)
            throw error
        }
    }

    /// Writes an event to the log of a provider.
    func note(
        _ event: IdentityEvent, _ identity: Identity?, of provider: any CertificateProvider,
        _ error: ProviderError? = nil
    ) {
        guard let logger = made[provider.id]?.logger, error?.isRefusal ?? true else { return }
        event.write(to: logger, identity, of: provider.id, failedWith: error)
    }

    /// Deletes the stored identity of a provider. Returns the error if that fails.
    ///
    /// - Parameter known: The stored identity, where the caller has read it: for the event.
    func delete(
        _ provider: any CertificateProvider, _ log: inout DecisionLog, known: Identity? = nil
    ) async -> ProviderError? {
        let start = uptime()
        let result = await attempt(with: provider) { () throws(ProviderError) in
            try provider.deleteStoredCertificate()
        }
        switch result {
        case .success:
            note(.deleted, known?.provenance.provider == provider.id ? known : nil, of: provider)
            log.append(provider.id, .delete, .deleted, since: start)
            return nil
        case .failure(let error):
            let error = error.attributed(to: provider.id)
            log.append(provider.id, .delete, .stopped, error: error, since: start)
            return error
        }
    }

    /// Runs a call that may block on the provider's executor.
    private func attempt<T: Sendable>(
        with provider: any CertificateProvider, _ call: @escaping @Sendable () throws(ProviderError) -> T
    ) async -> Result<T, ProviderError> {
        guard let executor = made[provider.id]?.executor else { return Result(catching: call) }
        do throws(ProviderError) { return .success(try await executor.run(call)) } catch {
            return .failure(error)
        }
    }
}

extension ProviderError {
    /// Whether it counts as a refusal among events: not where there is nothing yet, or the operation was ended from outside.
    package var isRefusal: Bool {
        !ProviderSequence.fallthroughCodes.union([.pending, .userCancelled, .operationNotAllowed, .interactionRequired])
            .contains(code)
    }
}

extension DecisionLog {
    /// Records the result about a stored identity, and returns the identity if there is one.
    mutating func take(
        _ result: Result<Identity?, ProviderError>, of provider: any CertificateProvider,
        before rest: ArraySlice<any CertificateProvider>, since start: Duration
    ) throws(ProviderError) -> Identity? {
        switch result {
        case .success(nil):
            append(provider.id, .stored, .none, since: start)
            return nil
        case .success(let identity?):
            append(provider.id, .stored, .identity, since: start)
            appendNotAsked(rest, .stored, because: "'\(provider.id)' was chosen before")
            return identity
        case .failure(let error):
            let error = error.attributed(to: provider.id)
            append(provider.id, .stored, .stopped, error: error, since: start)
            appendNotAsked(rest, .stored, because: "'\(provider.id)' failed before")
            throw error
        }
    }
}

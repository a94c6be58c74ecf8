package import CertificateProviding
import IdentityStore

/// Another configuration for a program that runs. A manager does not change: another one takes its place, and an operation
/// in progress ends with the one that it began with.
extension LogonManager {
    /// Returns a manager of another configuration, to be used instead of this one from now on.
    ///
    /// Both share the registration, the vault with its lock timer and its followers, and the rule that one operation changes
    /// something at a time. Providers with the same parameters, key stores and plugins are the same objects in both. The other
    /// ones are shut down when nothing holds this manager any more.
    ///
    /// - Parameters:
    ///   - load: Reads the configuration. May block.
    ///   - install: Puts the new manager into the place of this one, while no operation of either changes anything. When it
    ///     throws, everything stays as it was.
    /// - Returns: `nil` if all settings are the same.
    /// - Throws: `operationNotAllowed` while another operation is in progress, also of another process. `configurationInvalid`
    ///   for a setting that cannot change while the program runs, or while the application is registered. `vaultLocked` if the
    ///   vault has to be asked about that. Errors of `load`, of the making of providers, and of `install`.
    package func replacement(
        load: @escaping @Sendable () throws(ProviderError) -> LogonConfiguration,
        install: (LogonManager) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> LogonManager? {
        try operations.begin()
        defer { operations.end() }
        let loaded = try await executor.run(load)
        guard loaded != configuration else { return nil }
        let differing = LogonSetting.all.first { $0.makesVault && !$0.isSame(configuration, loaded) }
        if let key = differing?.descriptor.name {
            throw loaded.invalid(
                key,
                "'\(key)' cannot change while the program runs; restore it, or restart the program.")
        }
        // Another process may register with the providers of before.
        let registrar = registration?.registrar
        let lease = try await registrar?.executor.run { () throws(ProviderError) in
            try registrar?.vault.leaseOperation()
        }
        if registrar != nil, lease == nil { throw RegistrationMachine.Refusal.busy.error }
        defer { withExtendedLifetime(lease) {} }
        let new = try await executor.run { [self] () throws(ProviderError) in
            try LogonManager(
                loaded, registry, replacing: self, operations, registrar, executor, uptime: sequence.uptime, now: now,
                environment)
        }
        guard let registration, let replacing = new.registration else {
            try await install(new)
            sequence.markReplaced(by: new.sequence)
            return new
        }
        try await registration.vault.using { () throws(ProviderError) in
            try await registration.requireReplaceable(by: replacing)
            try await install(new)
        }
        sequence.markReplaced(by: new.sequence)
        replacing.vault.takeOver()
        // Its end starts the timer.
        try await replacing.vault.using { () throws(ProviderError) in }
        return new
    }

    /// Whether both managers ask the same providers in the same order.
    package func hasSameProviders(as other: LogonManager) -> Bool {
        sequence.isSame(as: other.sequence)
    }

    /// Whether both managers have the same provider for this identity.
    package func hasSameProvider(of identity: Identity, as other: LogonManager) -> Bool {
        let id = identity.provenance.provider
        return sequence[id] === other.sequence[id]
    }

    /// Returns the stored identity, or a new one. For `install` of ``replacement(load:install:)``,
    /// in which no other operation runs.
    ///
    /// - Throws: As ``identity(_:)``.
    package func firstIdentity(
        _ interaction: any UserInteraction, where isUsable: (Identity) -> Bool
    ) async throws(ProviderError) -> Identity {
        try requireProviders()
        try await registration?.vault.unlockByItself()
        var log = sequence.log()
        defer { operations.keep(log) }
        if let stored = try await stored(&log), isUsable(stored) { return stored }
        return try await obtain(interaction, &log)
    }

    /// Returns this manager's provider for a configuration, if it would be made in the same way.
    func made(for configured: ConfiguredProvider, of other: LogonConfiguration) -> MadeProvider? {
        guard configuration.makesTheSame(as: other), configuration.providers.contains(configured) else { return nil }
        return sequence[configured.id]
    }
}

extension Registration {
    /// Checks that another configuration may take the place of this one: row 27 of the table, and what the vault was made with.
    fileprivate func requireReplaceable(by other: Registration) async throws(ProviderError) {
        let new = other.configuration
        guard try await registrar.state() != .notRegistered else { return }
        let place = try new.platform().place
        let remaining = Set(new.providers.map(\.id))
        if new.userCreationPolicy == configuration.userCreationPolicy,
            configuration.providers.allSatisfy({ remaining.contains($0.id) }),
            (try? configuration.platform().place) == place
        {
            return
        }
        // By the new source: the old one may have been wrong.
        try? await other.vault.unlockByItself()
        guard try await registrar.state() == .registeredUnlocked else {
            throw ProviderError(
                .vaultLocked,
                "UserCreationPolicy, CertificateProvider or the server's address has changed. The vault is locked, so the "
                    + "change cannot be checked. Unlock the vault, and load the configuration again.")
        }
        guard let record = try await registrar.record() else { return }
        guard record.policy == new.userCreationPolicy.rawValue else {
            throw new.invalid("UserCreationPolicy", RegistrationMachine.Refusal.configurationChanged.error.message)
        }
        if let provider = record.provider, !remaining.contains(where: { $0.rawValue == provider }) {
            throw new.invalid("CertificateProvider", RegistrationMachine.Refusal.configurationChanged.error.message)
        }
        if let registered = record.place, registered != place {
            throw new.invalid("Host", ConnectionRecord.otherPlace(registered, place))
        }
    }
}

import CertificateProviding
import IdentityStore
import ProviderTransport

/// The registration of an application under one configuration. `RegistrationMachine` decides the effects of each operation;
/// here they are done. State that outlives a configuration is in the registrar.
struct Registration: Sendable {
    let configuration: LogonConfiguration
    let registrar: Registrar
    let providers: ProviderSequence
    let operations: Operations
    let vault: VaultAccess
    let password: ServerPassword

    init(
        _ configuration: LogonConfiguration, _ registrar: Registrar, _ providers: ProviderSequence,
        _ operations: Operations, _ key: VaultKey
    ) {
        (self.configuration, self.registrar, self.providers) = (configuration, registrar, providers)
        self.operations = operations
        vault = VaultAccess(configuration: configuration, registrar: registrar, key: key)
        password = ServerPassword(configuration: configuration, registrar: registrar, vault: vault)
    }

    /// Returns the providers that count: while the application is registered, the one that registered, and no other.
    ///
    /// - Throws: `vaultLocked`, `storeReadFailed`.
    func candidates() async throws(ProviderError) -> [any CertificateProvider] {
        guard try await registrar.state() != .notRegistered, let record = try await registrar.record() else {
            return providers.all
        }
        let registered = providers.all.filter { $0.id.rawValue == record.provider }
        if registered.isEmpty { throw RegistrationMachine.Refusal.configurationChanged.error }
        return registered
    }

    /// The provider that registered; `nil` before the registration, and for a password.
    func registeredProvider(_ run: RegistrationRun) -> (any CertificateProvider)? {
        guard let id = run.record?.provider else { return nil }
        return providers.all.first { $0.id.rawValue == id }
    }

    /// Returns the record of the connection. Reads it once.
    func connection(
        _ run: inout RegistrationRun
    ) async throws(ProviderError) -> ConnectionRecord {
        if let record = run.record { return record }
        guard let record = try await registrar.record() else { throw ConnectionRecord.damaged }
        run.record = record
        return record
    }

    /// Throws what the machine refuses in the state that the disk has.
    func requirePermission(
        for command: RegistrationMachine.Command, in state: LogonState, _ run: inout RegistrationRun
    ) async throws(ProviderError) {
        let situation = try await situation(state, &run)
        if case .refused(let reason)? = RegistrationMachine.next(.init(state), .command(command, situation))?.outcome {
            throw refusal(reason, run)
        }
    }

    // MARK: - Operations that change something

    /// Collects what a registration needs before its first step, so that nothing is left half done for the lack of it.
    func prepare(_ run: inout RegistrationRun, asksForSecrets: Bool) async throws(ProviderError) {
        guard try await registrar.state() == .notRegistered else { return }
        try await registrar.client(configuration).checkTrust()
        _ = try vault.key.store()
        (run.passcode, run.isAutomatic) = try await vault.passcodeForNewVault(run.interaction)
        try await vault.key.open(run.interaction)
        guard configuration.userCreationPolicy != .certificate else { return }
        let settings = configuration.registration
        let (codeSource, passwordSource) =
            asksForSecrets
            ? (settings.activationCodeSource.map { _ in .prompt }, .prompt)
            : (settings.activationCodeSource, settings.passwordSource ?? .prompt)
        run.activationCode = try await vault.secret(codeSource, run.interaction, "Activation code")
        let server = configuration.host ?? "the server"
        if let name = settings.username {
            run.username = name
        } else {
            try vault.requireUser(run.interaction, "the user's name at \(server)", "Registration.username")
            run.username = try await run.interaction.requestText("User name at \(server)")
        }
        if passwordSource == .prompt {
            try vault.requireUser(
                run.interaction, "the password of '\(run.username ?? "")' at \(server)", "Registration.password-source")
        }
        run.password = try await vault.secret(
            passwordSource, run.interaction, "Password of '\(run.username ?? "")' at \(server)")
        run.isPasswordAutomatic = passwordSource != .prompt
        if run.isPasswordAutomatic {
            try await password.requireNotRejected(run, at: try registrar.client(configuration).platform.place)
        }
    }

    /// Runs an operation: what the machine says, until it is at rest.
    ///
    /// - Parameter prepare: Collects what the operation needs, before its first step.
    func changing(
        _ command: RegistrationMachine.Command, _ interaction: any UserInteraction,
        prepare: (inout RegistrationRun) async throws(ProviderError) -> Void = { _ in }
    ) async throws(ProviderError) -> RegistrationRun {
        try await vault.using { () throws(ProviderError) in
            try await changingAlone(command, interaction, prepare)
        }
    }

    private func changingAlone(
        _ command: RegistrationMachine.Command, _ interaction: any UserInteraction,
        _ prepare: (inout RegistrationRun) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> RegistrationRun {
        do throws(ProviderError) { try operations.begin() } catch {
            throw RegistrationMachine.Refusal.busy.error
        }
        registrar.isChanging = true
        defer {
            registrar.isChanging = false
            operations.end()
        }
        // Another process may register or leave at the same time.
        var lease: RecordLease?
        // The vault itself orders passcodes of several processes.
        if ![.unlock, .lock, .changePasscode].contains(command) {
            lease = try await registrar.executor.run { () throws(ProviderError) in
                try registrar.vault.leaseOperation()
            }
            if lease == nil { throw await registrar.busy() }
        }
        defer { withExtendedLifetime(lease) {} }

        switch command {
        case .register, .request, .update, .unregister, .changePassword: try await vault.unlockByItself()
        case .unregisterByForce: try? await vault.unlockByItself()
        case .unlock, .lock, .changePasscode: break
        }
        var run = RegistrationRun(interaction)
        var state: RegistrationMachine.State
        do throws(ProviderError) { state = .init(try await registrar.state()) } catch {
            // A vault whose key is damaged can still be destroyed.
            guard command == .unregisterByForce, error.code == .storeReadFailed else { throw error }
            state = .locked
        }
        // Another process may have destroyed the vault, whose key this one still has.
        if state == .notRegistered { registrar.vault.lock() }
        let start = RegistrationMachine.Event.command(
            command, try await situation(state.atRest ?? .notRegistered, &run))
        if case .refused(let reason)? = RegistrationMachine.next(state, start)?.outcome {
            throw refusal(reason, run)
        }
        try await prepare(&run)
        var log = providers.log()
        defer { if !log.decisions.isEmpty { operations.keep(log) } }
        var (event, failure) = (start, ProviderError?.none)
        while let transition = RegistrationMachine.next(state, event) {
            state = transition.state
            guard let effect = transition.effect else {
                // Reads the disk, also after an effect that failed half way.
                _ = try? await registrar.state()
                switch transition.outcome {
                case .failure?:
                    var failure = failure ?? ProviderError(.internal, "The operation failed.")
                    for remark in run.remarks { failure.message += " \(remark)" }
                    throw failure
                case .refused(let reason)?: throw refusal(reason, run)
                case .success?, nil:
                    // Whatever has unlocked or made it, the user knows.
                    if state == .unlocked { registrar.isLockedOnPurpose = false }
                    return run
                }
            }
            do throws(ProviderError) {
                try await perform(effect, &run, &log)
                event = .done
            } catch {
                failure = error
                if error.code == .vaultDestroyed { failure?.message += vault.key.remainingKeys }
                let isByPasscode = [.unlockVault, .changePasscode].contains(effect)
                event = isByPasscode && error.code == .vaultDestroyed ? .destroyed : .failed
            }
        }
        throw ProviderError(
            .internal, "The registration is in the state \(state.rawValue), and has no next step.")
    }

    /// Returns what the configuration says, beside the vault.
    private func situation(
        _ state: LogonState, _ run: inout RegistrationRun
    ) async throws(ProviderError) -> RegistrationMachine.Situation {
        let now: RegistrationMachine.Situation =
            configuration.userCreationPolicy != .certificate
            ? .password : providers.all.isEmpty ? .noProvider : .certificate
        guard state == .registeredUnlocked else { return now }
        let record: ConnectionRecord
        do throws(ProviderError) { record = try await connection(&run) } catch {
            // Whatever is damaged, it can be destroyed.
            guard error.code == .storeReadFailed else { throw error }
            run.damage = error
            return .changed
        }
        if record.isLeft == true { return .left }
        let isSame =
            record.policy == configuration.userCreationPolicy.rawValue
            && (record.provider == nil || providers.all.contains { $0.id.rawValue == record.provider })
        return isSame ? now : .changed
    }

    /// A record that cannot be read refuses what another configuration does, for its own reason.
    private func refusal(_ reason: RegistrationMachine.Refusal, _ run: RegistrationRun) -> ProviderError {
        if reason == .configurationChanged, let damage = run.damage { return damage }
        return reason.error
    }
}

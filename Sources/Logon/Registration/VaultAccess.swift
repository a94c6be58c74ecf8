import CertificateProviding
import IdentityStore

/// The vault, and what the user or the configuration gives to open it.
struct VaultAccess: Sendable {
    let configuration: LogonConfiguration
    let registrar: Registrar
    let key: VaultKey

    /// Runs an operation during which the vault is not locked.
    func using<T>(
        _ operation: () async throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        try await registrar.using(lockingAfter: { lockTimeout }, operation)
    }

    /// As ``using(_:)``, with a vault that is unlocked if that needs no user.
    func unlocked<T>(
        _ operation: () async throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        try await using { () throws(ProviderError) in
            try await unlockByItself()
            return try await operation()
        }
    }

    var lockTimeout: Duration? { registrar.lockTimeout(configuration.registration) }

    /// From now on, a provider that finds the vault locked gets it unlocked as this configuration says.
    func takeOver() { registrar.settings = configuration.registration }

    /// Unlocks the vault if `Passcode.source` names a secret, as services need it: for the first use, and for each one after the
    /// lock timeout. Not where the program has locked it.
    ///
    /// - Throws: As ``LogonManager/unlock(_:)``.
    func unlockByItself() async throws(ProviderError) {
        guard !registrar.isLockedOnPurpose, try await registrar.state() == .registeredLocked else { return }
        let source = configuration.registration.passcodeSource
        // Without a passcode, the key of a key store can be all that it needs.
        let hasNoPasscode = try await registrar.executor.run { () throws(ProviderError) in
            try registrar.vault.hasNoPasscode()
        }
        guard hasNoPasscode || (source != nil && source != .prompt) else { return }
        try await unlock(RegistrationRun(NoUserInteraction()))
        registrar.publish(.registeredUnlocked)
    }

    /// Unlocks the vault with what the operation has, the configuration names, or the user gives.
    func unlock(_ run: RegistrationRun) async throws(ProviderError) {
        let source = configuration.registration.passcodeSource
        let isAutomatic = run.passcode == nil && source != nil && source != .prompt
        let hasNoPasscode = try await registrar.executor.run { () throws(ProviderError) in
            try registrar.vault.hasNoPasscode()
        }
        var passcode = run.passcode
        if passcode == nil, !hasNoPasscode {
            if let read = try await secret(source, run.interaction, passcodePrompt) {
                passcode = read
            } else {
                passcode = try await run.interaction.requestSecret(passcodePrompt)
            }
        }
        let factor = try await key.factor(run.interaction)
        try await registrar.executor.run { [passcode] () throws(ProviderError) in
            try unlessGone { () throws(ProviderError) in
                try registrar.vault.unlock(passcode, factor: factor, isAutomatic: isAutomatic)
            }
        }
    }

    /// Runs what needs the vault, which was there. Another process may have unregistered the application since.
    func unlessGone(
        _ operation: () throws(ProviderError) -> Void
    ) throws(ProviderError) {
        do throws(ProviderError) { try operation() } catch {
            throw error.code == .notFound ? RegistrationMachine.Refusal.notRegistered.error : error
        }
    }

    private var passcodePrompt: String { "Passcode of \(application)" }

    private var newPasscodePrompt: String { "New passcode of \(application)" }

    private var application: String { "the application '\(configuration.registration.applicationID ?? "")'" }

    /// Reads a secret of the configuration, or asks the user for it; `nil` without a source.
    func secret(
        _ source: SecretSource?, _ interaction: any UserInteraction, _ prompt: String
    ) async throws(ProviderError) -> SecretBytes? {
        guard let source else { return nil }
        if source == .prompt { return try await interaction.requestSecret(prompt) }
        return try await registrar.executor.run { () throws(ProviderError) in
            try registrar.secrets.read(source)
        }
    }

    /// Returns the passcode of a new vault, of `Passcode.source` or of the user; `nil` for none, if the policy permits that.
    func passcodeForNewVault(
        _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (passcode: SecretBytes?, isAutomatic: Bool) {
        let settings = configuration.registration
        var passcode: SecretBytes?
        var isAutomatic = false
        if let source = settings.passcodeSource, source != .prompt {
            passcode = try await secret(source, interaction, newPasscodePrompt)
            isAutomatic = true
        } else if !settings.passcodePolicy.allowsDefault {
            try requireUser(interaction, "a passcode for the vault of \(application)", "Passcode.source")
            passcode = try await newPasscode(interaction)
        }
        if let passcode { try settings.passcodePolicy.check(passcode) }
        return (passcode, isAutomatic)
    }

    /// Checks that what no setting names can be asked for.
    ///
    /// - Throws: `interactionRequired`.
    func requireUser(
        _ interaction: any UserInteraction, _ what: String, _ setting: String
    ) throws(ProviderError) {
        guard !interaction.canAsk else { return }
        throw ProviderError(
            .interactionRequired, "A registration needs \(what), and there is no user to ask; set \(setting).")
    }

    /// Asks for a new passcode, twice.
    func newPasscode(_ interaction: any UserInteraction) async throws(ProviderError) -> SecretBytes {
        let first = try await interaction.requestSecret(newPasscodePrompt)
        try configuration.registration.passcodePolicy.check(first)
        guard try await interaction.requestSecret("The same passcode again") == first else {
            throw ProviderError(.userCancelled, "The two passcodes differ; register again.")
        }
        return first
    }
}

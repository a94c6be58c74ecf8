public import CertificateProviding
import IdentityStore
public import ProviderTransport

// The operations of the registration.
extension LogonManager {
    private func requireRegistration() throws(ProviderError) -> Registration {
        if let registration { return registration }
        throw ProviderError(
            .operationNotAllowed,
            "This needs an application to register; set ApplicationId, and give the manager its vault.")
    }

    /// Returns whether the application is registered. Reads the vault's directory, and no more; a vault without a passcode is
    /// unlocked.
    ///
    /// - Throws: `operationNotAllowed` for a manager without a vault; `storeReadFailed`.
    public func registrationState() async throws(ProviderError) -> LogonState {
        try await requireRegistration().registrar.state()
    }

    /// Returns the changes of the state from now on, as far as this process learns of them. Each call returns a sequence of
    /// its own, which ends with the manager.
    ///
    /// - Throws: `operationNotAllowed` for a manager without a vault.
    public func registrationStates() throws(ProviderError) -> AsyncStream<LogonState> {
        try requireRegistration().registrar.states()
    }

    /// Registers the application with the platform server.
    ///
    /// With the policy `certificate`, the providers are asked for an identity, and the server learns the user from its
    /// certificate. Otherwise the user's name and password are sent (HTTP Basic). The user is asked for what the configuration
    /// does not name, the passcode of the new vault first. An application that is registered stays so.
    ///
    /// The policy of passcodes that the server has may be stricter than that of the configuration; the user is then asked for
    /// another passcode. With `Vault.key`, that key store makes a key, without which the passcode does not open the vault.
    ///
    /// - Parameter asksForSecrets: Whether the user is asked for the password and the activation code, though the configuration has
    ///   sources of them. One from a source that the server has rejected is not sent again, and one that got no answer only a few
    ///   times: `operationNotAllowed` says when.
    /// - Throws: `noCertificateProvider`; errors of the provider, unchanged; `rejected` if the server refuses; `vaultLocked`;
    ///   `configurationInvalid`, also for a passcode that is too weak; errors of the connection, of the vault and of the key
    ///   store. Nothing is registered then, as far as this host knows: the next attempt asks for the same connection.
    @discardableResult
    public func register(
        _ interaction: any UserInteraction, asksForSecrets: Bool = false
    ) async throws(ProviderError) -> RegisteredConnection {
        let registration = try requireRegistration()
        var run = try await registration.changing(.register, interaction) { run throws(ProviderError) in
            try await registration.prepare(&run, asksForSecrets: asksForSecrets)
        }
        let record = try await registration.connection(&run)
        guard let id = ConnectionID(record.connectionID) else { throw ConnectionRecord.damaged }
        return RegisteredConnection(id: id, isNew: run.isRegistered)
    }

    /// Ends the registration: the server's connection, the identity of the provider that registered, and the vault.
    ///
    /// - Throws: `vaultLocked`; `rejected` and errors of the connection, after which nothing is deleted; errors of the
    ///   provider's deletion, after which the vault is destroyed all the same.
    public func unregister(_ interaction: any UserInteraction) async throws(ProviderError) {
        try await unregister(by: .unregister, interaction)
    }

    /// Ends the registration as ``unregister(_:)`` does, though the server cannot be asked. A vault that is locked is deleted too:
    /// keys in key stores stay there.
    ///
    /// - Throws: Errors of the provider's deletion, after which the vault is destroyed all the same.
    public func unregisterByForce(_ interaction: any UserInteraction) async throws(ProviderError) {
        try await unregister(by: .unregisterByForce, interaction)
    }

    private func unregister(
        by command: RegistrationMachine.Command, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        let registration = try requireRegistration()
        _ = try await registration.changing(command, interaction) {
            run throws(ProviderError) in
            let registrar = registration.registrar
            guard (try? await registrar.state()) == .notRegistered else { return }
            // The remains of an interrupted operation in a vault, and in a key store.
            try await registrar.executor.run { () throws(ProviderError) in try registrar.vault.destroy() }
            try await registration.vault.key.destroy(run.interaction)
        }
    }

    /// Replaces the certificate of a registered application: deletes the identity, then asks the provider that registered for
    /// another one. The connection stays.
    ///
    /// - Returns: The new identity.
    /// - Throws: `noCertificateProvider` for a registration with a password; `vaultLocked`; errors of the deletion, after which
    ///   the old identity stays; errors of the provider, after which there is none, and the next request asks again.
    func updateRegisteredCertificate(
        _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        let run = try await requireRegistration().changing(.update, interaction)
        guard let identity = run.identity else {
            throw ProviderError(.internal, "The update has left nothing to return.")
        }
        return identity
    }

    /// Unlocks the vault for this process. The passcode is that of `Passcode.source`; without it the user is asked.
    ///
    /// With a `Passcode.source` other than `prompt`, every operation that needs the vault unlocks it by itself, unless
    /// ``lock()`` has locked it.
    ///
    /// - Throws: `wrongPassword`, with the number of attempts left; `vaultDestroyed` if it was the last one: the configured providers
    ///   have deleted what they can without the vault; `notFound` without a vault, `interactionRequired`, and errors of the vault.
    public func unlock(_ interaction: any UserInteraction) async throws(ProviderError) {
        _ = try await requireRegistration().changing(.unlock, interaction)
    }

    /// Unlocks the vault for this process with a passcode that the user has just given.
    ///
    /// - Parameter interaction: Is asked for the PIN of `Vault.key`, if that has no source.
    /// - Throws: As ``unlock(_:)``.
    public func unlock(
        passcode: SecretBytes, _ interaction: any UserInteraction = NoUserInteraction()
    ) async throws(ProviderError) {
        _ = try await requireRegistration().changing(.unlock, interaction) { run in run.passcode = passcode }
    }

    /// Locks the vault for this process. Requests that have begun go on.
    ///
    /// - Throws: `operationNotAllowed` for a manager without a vault, and while another operation is in progress.
    public func lock() async throws(ProviderError) {
        _ = try await requireRegistration().changing(.lock, NoUserInteraction())
    }

    /// Sets another passcode. The vault is unlocked afterwards.
    ///
    /// - Parameters:
    ///   - old: `nil` for a vault without one.
    ///   - new: `nil` for none, if the policy permits that.
    ///   - isAutomatic: Whether no user has just typed the old one: then it is tried once, and never as the last attempt.
    ///   - interaction: Is asked for the PIN of `Vault.key`, if that has no source.
    /// - Throws: As ``unlock(_:)`` for the old one; `configurationInvalid` for a new one that the policy refuses.
    public func changePasscode(
        from old: SecretBytes?, to new: SecretBytes?, isAutomatic: Bool = false,
        _ interaction: any UserInteraction = NoUserInteraction()
    ) async throws(ProviderError) {
        _ = try await requireRegistration().changing(.changePasscode, interaction) { run in
            (run.passcode, run.newPasscode, run.isAutomatic) = (old, new, isAutomatic)
        }
    }

    /// Sets another password of the user at the platform server, after that has accepted it. For a registration with a password,
    /// which has been changed on the server.
    ///
    /// A password that the server rejects is not sent again by itself: requests throw `rejected` from then on, until there is
    /// another one, by this function or in `Registration.password-source`.
    ///
    /// - Parameter isAutomatic: Whether no user has just typed it. One that the server has rejected before is not sent again then, and
    ///   one that got no answer only a few times.
    /// - Throws: `rejected`, and the former password stays; `notFound` if the application is not registered; `operationNotAllowed` if
    ///   it is with a certificate, and for a password that has to wait after it got no answer; `vaultLocked`; errors of the connection
    ///   and of the vault.
    public func changePassword(
        to password: SecretBytes, isAutomatic: Bool = false
    ) async throws(ProviderError) {
        _ = try await requireRegistration().changing(.changePassword, NoUserInteraction()) { run in
            (run.password, run.isPasswordAutomatic) = (password, isAutomatic)
        }
    }

    /// Sends a request to the platform server with the registered identity, or the user's password, and the connection's id.
    /// Requests may overlap, and use connections again.
    ///
    /// - Parameters:
    ///   - request: Its target begins with a slash. The field `X-SMP-APPCID` is added.
    ///   - interaction: The user, whom the provider may ask if there is no identity.
    /// - Returns: The response of any status but 401 and 403.
    /// - Throws: `rejected` if the server refuses the identity or the password, or has refused the password before;
    ///   `notFound` if the application is not registered; `vaultLocked`; errors of the provider, after which nothing is sent;
    ///   errors of the connection.
    public func request(
        _ request: HTTPRequest, _ interaction: any UserInteraction = NoUserInteraction()
    ) async throws(ProviderError) -> HTTPResponse {
        try await requireRegistration().response(to: request, interaction)
    }

    /// Returns the stored identity of the provider that registered; `nil` if there is none, and for a password.
    ///
    /// - Throws: As ``registeredConnection()``, and errors of the provider.
    public func registeredIdentity() async throws(ProviderError) -> Identity? {
        try await registered { registration, run throws(ProviderError) in
            guard let provider = registration.registeredProvider(run) else { return nil }
            var log = registration.providers.log()
            return try await registration.providers.stored(of: provider, &log)
        }
    }

    /// Returns the id of the connection.
    ///
    /// - Throws: `notFound` if the application is not registered; `vaultLocked`; `storeReadFailed`.
    public func registeredConnection() async throws(ProviderError) -> ConnectionID {
        try await registered { _, run throws(ProviderError) in
            guard let id = run.record.flatMap({ ConnectionID($0.connectionID) }) else { throw ConnectionRecord.damaged }
            return id
        }
    }

    private func registered<T>(
        _ look: (Registration, RegistrationRun) async throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        let registration = try requireRegistration()
        return try await registration.vault.unlocked { () throws(ProviderError) in
            guard try await registration.registrar.state() != .notRegistered else {
                throw RegistrationMachine.Refusal.notRegistered.error
            }
            var run = RegistrationRun(NoUserInteraction())
            _ = try await registration.connection(&run)
            return try await look(registration, run)
        }
    }

    // MARK: - For the command

    /// Checks that ``changePassword(to:)`` has something to change, before the user is asked.
    ///
    /// - Throws: As that.
    package func requirePassword() async throws(ProviderError) {
        let registration = try requireRegistration()
        try await registration.vault.unlocked { () throws(ProviderError) in
            var run = RegistrationRun(NoUserInteraction())
            let state = try await registration.registrar.state()
            try await registration.requirePermission(for: .changePassword, in: state, &run)
        }
    }

    /// A sentence that names the keys that the destruction of the vault leaves; empty if there are none.
    package var remainingKeys: String { registration?.vault.key.remainingKeys ?? "" }

    /// Checks that the key store of `Vault.key` makes such keys and answers, without a prompt. False without `Vault.key`.
    ///
    /// - Throws: `configurationInvalid`, and errors of the key store.
    package func checkVaultKey() async throws(ProviderError) -> Bool {
        guard configuration.registration.vaultKey != nil else { return false }
        return try await requireRegistration().vault.key.check()
    }
}

import CertificateProviding
import IdentityStore
import ProviderTransport

// Requests over the registered identity, or with the user's password: rows 12 to 15 of the table.
extension Registration {
    func response(
        to request: HTTPRequest, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> HTTPResponse {
        try await vault.using { () throws(ProviderError) in
            // Within an operation that changes something, the identity may be away.
            if registrar.isChanging { throw RegistrationMachine.Refusal.busy.error }
            var run = RegistrationRun(interaction)
            let state = try await stateAndRecord(&run)
            try await requirePermission(for: .request, in: state, &run)
            let record = try await connection(&run)
            let client = try registrar.client(configuration, of: record)
            let principal = try await principal(&run, record)
            return try await client.response(
                to: request, from: principal, over: ConnectionID(record.connectionID),
                purpose: "the request for \(request.target.withVisibleControls.prefix(200))")
        }
    }

    /// Returns the state, of a vault that is unlocked if that needs no user, and reads the record of the connection in the same
    /// call: each takes its time to reach the executor.
    private func stateAndRecord(_ run: inout RegistrationRun) async throws(ProviderError) -> LogonState {
        for isSecond in [false, true] {
            let (state, record) = try await registrar.executor.run { () throws(ProviderError) in
                try registrar.currentStateAndRecord()
            }
            registrar.publish(state)
            run.record = record
            if state != .registeredLocked || isSecond { return state }
            try await vault.unlockByItself()
        }
        return .registeredLocked
    }

    /// Returns the sender of the request.
    private func principal(
        _ run: inout RegistrationRun, _ record: ConnectionRecord
    ) async throws(ProviderError) -> PlatformClient.Principal {
        guard let provider = registeredProvider(run) else { return try await password.principal(record) }
        var log = providers.log()
        defer { operations.keep(log) }
        if let identity = try await providers.stored(of: provider, &log) { return .identity(identity) }
        let interaction = run.interaction
        let identity = try await providers.obtain(from: provider, &log) { () throws(ProviderError) in
            try await registrar.obtaining.run { () async throws(ProviderError) in
                try await obtainAlone(from: provider, interaction)
            }
        }
        return .identity(identity)
    }

    /// Obtains an identity while no other operation, of any process, changes the registration: an update between its deletion and
    /// its new identity would get two.
    private func obtainAlone(
        from provider: any CertificateProvider, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        do throws(ProviderError) { try operations.begin() } catch {
            throw RegistrationMachine.Refusal.busy.error
        }
        defer { operations.end() }
        let lease = try await registrar.executor.run { () throws(ProviderError) in
            try registrar.vault.leaseOperation()
        }
        guard let lease else { throw await registrar.busy() }
        defer { withExtendedLifetime(lease) {} }
        return try await provider.getCertificate(interaction)
    }
}

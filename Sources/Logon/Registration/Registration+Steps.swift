import CertificateProviding
import IdentityStore
import ProviderTransport

// The work of the machine's steps.
extension Registration {
    func perform(
        _ effect: RegistrationMachine.Effect, _ run: inout RegistrationRun, _ log: inout DecisionLog
    ) async throws(ProviderError) {
        switch effect {
        case .getCertificate:
            let interaction = run.interaction
            if let provider = registeredProvider(run) {
                run.identity = try await providers.obtain(from: provider, &log) { () throws(ProviderError) in
                    try await provider.getCertificate(interaction)
                }
                registrar.forgetConnections()
            } else {
                // Before the registration the configured order counts.
                run.identity = try await providers.obtain(from: try await candidates(), interaction, &log)
            }
        case .getStoredCertificate:
            guard let provider = registeredProvider(run) else {
                throw RegistrationMachine.Refusal.configurationChanged.error
            }
            guard let identity = try await providers.stored(of: provider, &log) else {
                throw ProviderError(
                    .notFound,
                    "The provider has lost the certificate to unregister with; obtain another one with 'certprov update', or run: "
                        + "certprov unregister --force", provider: provider.id)
            }
            run.identity = identity
        case .deleteStoredCertificate:
            // A registration with a password, which an earlier run has ended on the server.
            if run.record?.isLeft == true, run.record?.provider == nil { return }
            guard let provider = registeredProvider(run) else {
                throw RegistrationMachine.Refusal.configurationChanged.error
            }
            if let error = await providers.delete(provider, &log) { throw error }
            run.identity = nil
            registrar.forgetConnections()
        case .deleteStoredCertificates:
            for provider in providers.all {
                guard let error = await deleteCopy(of: provider, &log) else { continue }
                run.remarks.append("The provider '\(provider.id)' has not deleted its own data: \(error.message)")
            }
            registrar.forgetConnections()
        case .writeConnection: try await writeConnection(&run)
        case .post: try await post(&run)
        case .delete:
            let record = try await connection(&run)
            guard let id = ConnectionID(record.connectionID) else { throw ConnectionRecord.damaged }
            let client = try registrar.client(configuration, of: record)
            let principal = run.identity == nil ? try await password.principal(record) : try principal(of: run)
            try await client.delete(id, from: principal)
            // Killed from here on, another run goes on without the server and the identity. Without room on the disk, that
            // needs force.
            var left = record
            left.isLeft = true
            run.record = left
            try? await registrar.executor.run { [left] () throws(ProviderError) in
                try left.write(to: registrar.vault)
            }
        case .createVault: try await createVault(&run)
        case .destroyVault:
            try await registrar.executor.run { () throws(ProviderError) in
                try registrar.vault.destroy()
                try ConnectionRecord.forget(in: registrar.vault)
            }
            registrar.forgetConnections()
            try await vault.key.destroy(run.interaction)
        case .lockVault:
            registrar.isLockedOnPurpose = true
            registrar.lock()
        case .unlockVault: try await vault.unlock(run)
        case .changePasscode:
            let (old, new, isAutomatic) = (run.passcode, run.newPasscode, run.isAutomatic)
            let factor = try await vault.key.factor(run.interaction)
            try await registrar.executor.run { () throws(ProviderError) in
                try vault.unlessGone { () throws(ProviderError) in
                    try registrar.vault.changePasscode(from: old, to: new, factor: factor, isAutomatic: isAutomatic)
                }
            }
        case .changePassword:
            guard let password = run.password else { throw ConnectionRecord.damaged }
            try await self.password.change(
                to: password, try await connection(&run), isAutomatic: run.isPasswordAutomatic)
        }
    }

    // MARK: - Steps

    private func principal(of run: RegistrationRun) throws(ProviderError) -> PlatformClient.Principal {
        guard let identity = run.identity else { throw ConnectionRecord.damaged }
        return .identity(identity)
    }

    private func writeConnection(_ run: inout RegistrationRun) async throws(ProviderError) {
        let policy = configuration.userCreationPolicy.rawValue
        let principal = run.identity.map { "\($0.certificate.subject)\n\($0.certificate.issuer)" } ?? run.username
        run.record = try await registrar.executor.run { () throws(ProviderError) in
            // The id of an attempt whose answer was lost: the server may know it. For another user, it would refuse it.
            let known = try ConnectionRecord.read(from: registrar.vault)
            let id = known?.principal == principal ? known?.connectionID : nil
            let record = ConnectionRecord(
                connectionID: id ?? ConnectionID().description, principal: principal, policy: policy)
            try record.write(to: registrar.vault)
            return record
        }
    }

    private func post(_ run: inout RegistrationRun) async throws(ProviderError) {
        guard var record = run.record, let id = ConnectionID(record.connectionID) else {
            throw ConnectionRecord.damaged
        }
        let client = try registrar.client(configuration)
        let principal: PlatformClient.Principal
        if let identity = run.identity {
            principal = .identity(identity)
            record.provider = identity.provenance.provider.rawValue
        } else {
            guard let name = run.username, let password = run.password else {
                throw ProviderError(.internal, "The registration has neither an identity nor a password.")
            }
            principal = .user(name, self.password.onTrial(password, of: run, at: client.platform.place))
            record.username = name
        }
        let (given, demands) = try await client.create(id, from: principal, activationCode: run.activationCode)
        record.connectionID = given.description
        run.demands = demands
        record.place = client.platform.place
        run.record = record
    }

    /// Deletes the stored identity of a provider, unless that destroys something outside this host's store, such as a key in
    /// a token, which needs a confirmation. Returns the error if it is not deleted.
    private func deleteCopy(
        of provider: any CertificateProvider, _ log: inout DecisionLog
    ) async -> ProviderError? {
        do throws(ProviderError) {
            let announced = try await provider.deletions?.announcedDeletions() ?? []
            guard announced.isEmpty else {
                return ProviderError(
                    .operationNotAllowed,
                    "The deletion needs a confirmation: \(announced.joined(separator: " ")) To delete it, run: certprov delete"
                )
            }
        } catch {
            return error
        }
        return await providers.delete(provider, &log)
    }

    private func createVault(_ run: inout RegistrationRun) async throws(ProviderError) {
        guard let record = run.record else { throw ConnectionRecord.damaged }
        var terms = VaultTerms(demands: run.demands)
        var passcode = run.passcode
        // A user may choose another one that the server permits.
        while !run.isAutomatic, run.interaction.canAsk {
            do throws(ProviderError) {
                try registrar.vault.check(passcode, terms)
                break
            } catch {
                run.interaction.report(error.message)
                passcode = try await vault.newPasscode(run.interaction)
            }
        }
        try registrar.vault.check(passcode, terms)
        let factor = try await vault.key.make(&terms, run.interaction)
        let password = run.password
        try await registrar.executor.run { [passcode, terms] () throws(ProviderError) in
            try record.createVault(
                registrar.vault, passcode: passcode, password: password, terms: terms, factor: factor)
        }
        run.isRegistered = true
    }
}

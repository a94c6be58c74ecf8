public import CertificateProviding

extension EnrollingProvider: IdentityRevoking {
    public var revocation: (any IdentityRevoking)? { server.revokes ? self : nil }

    public func revokeStoredCertificate(
        _ reason: RevocationReason, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        try await inSession(interaction) { [self] session throws(ProviderError) in
            let entry = try await environment.executor.run { [self] () throws(ProviderError) in
                try environment.storage.entry(named: plan.storageName)
            }
            guard let entry, let reference = entry.key, let key = try await keys.key(for: reference, interaction) else {
                throw ProviderError(
                    .notFound, "No identity is stored whose certificate could be revoked, or its key is gone.")
            }
            try await session.revoke(try identity(entry, key), reason)
        }
    }

    public func closeAccount(_ interaction: any UserInteraction) async throws(ProviderError) {
        try await inSession(interaction) { session throws(ProviderError) in try await session.closeAccount()
        }
    }

    /// Runs work in a session of its own, while no other process enrols.
    private func inSession(
        _ interaction: any UserInteraction,
        _ work: @Sendable (any EnrolmentSession) async throws(ProviderError) -> Void
    ) async throws(ProviderError) {
        do throws(ProviderError) {
            let done: Void? = try await environment.withLease(of: recordName) {
                () async throws(ProviderError) in
                let session = try await server.session(interaction)
                do throws(ProviderError) {
                    try await work(session)
                    await session.noteOutcome(nil)
                } catch {
                    await session.noteOutcome(error)
                    throw error
                }
            }
            if done == nil { throw busy }
        } catch {
            throw error.attributed(to: id)
        }
    }
}

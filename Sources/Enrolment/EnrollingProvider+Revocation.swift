public import CertificateProviding

extension EnrollingProvider: IdentityRevoking {
    public var revocation: (any IdentityRevoking)? { server.revokes ? self : nil }

    public func revokeStoredCertificate(
        _ reason: RevocationReason, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        try await inSession(interaction) { [self] session throws(CertificateProviderError) in
            let entry = try await environment.executor.run { [self] () throws(CertificateProviderError) in
                try environment.storage.entry(named: plan.storageName)
            }
            guard let entry, let reference = entry.key, let key = try await keys.key(for: reference, interaction) else {
                throw CertificateProviderError(
                    .notFound, "No identity is stored whose certificate could be revoked, or its key is gone.")
            }
            try await session.revoke(try identity(entry, key), reason)
        }
    }

    public func closeAccount(_ interaction: any UserInteraction) async throws(CertificateProviderError) {
        try await inSession(interaction) { session throws(CertificateProviderError) in try await session.closeAccount()
        }
    }

    /// Runs work in a session of its own, while no other process enrols.
    private func inSession(
        _ interaction: any UserInteraction,
        _ work: @Sendable (any EnrolmentSession) async throws(CertificateProviderError) -> Void
    ) async throws(CertificateProviderError) {
        do throws(CertificateProviderError) {
            let done: Void? = try await environment.withLease(of: recordName) {
                () async throws(CertificateProviderError) in
                let session = try await server.session(interaction)
                do throws(CertificateProviderError) {
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

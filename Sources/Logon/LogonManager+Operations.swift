public import CertificateProviding

extension LogonManager {
    /// Returns the first stored identity; `nil` if no provider has one.
    ///
    /// Does not use the network and does not prompt. The providers' calls, which may block, run on their executors: most
    /// read a small file; the provider for tokens calls into the token's module, for at most its `timeout`.
    ///
    /// - Throws: The first error of a provider that cannot tell whether it has one.
    public func storedIdentity() async throws(ProviderError) -> Identity? {
        try requireProviders()
        return try await unlocked { () throws(ProviderError) in
            var log = sequence.log()
            defer { operations.keep(log) }
            return try await stored(&log)
        }
    }

    /// Returns the first stored identity, and obtains one if there is none. If the stored one has expired, its provider is
    /// asked for another one. A file of the provider that has changed is taken at once.
    ///
    /// - Throws: As ``storedIdentity()`` and ``obtainIdentity(_:)``; `expired` if the provider has only one that is over. Then
    ///   also in place of `pending`, `timedOut` and `operationNotAllowed` of the provider.
    public func identity(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        try await identity(interaction) { _ in }
    }

    /// As ``identity(_:)``.
    ///
    /// - Parameter check: Looks at a provider without a usable stored identity before it is asked for one, and so before a person is.
    package func identity(
        _ interaction: any UserInteraction, checking check: ProviderCheck
    ) async throws(ProviderError) -> Identity {
        try await exclusively { log throws(ProviderError) in
            let now = self.now()
            let identity: Identity
            if let stored = try await self.stored(&log) {
                guard stored.hasExpired(at: now) else { return try await self.refreshed(stored, interaction, &log) }
                identity = try await self.replacement(
                    of: stored, because: "the stored identity has expired", at: now, interaction, &log, checking: check)
            } else {
                identity = try await self.obtain(interaction, &log, checking: check)
            }
            try identity.requireUnexpired(at: now)
            return identity
        }
    }

    /// Asks the providers for a new identity, even if one is stored. The provider that returns one replaces its stored
    /// identity; if none does, the stored identities are unchanged.
    ///
    /// - Throws: The error that ended the operation, unchanged. If every provider was tried: the error of the only one,
    ///   or an error with the code of the most preferred one that lists all messages. `userCancelled` if the task is
    ///   cancelled between two providers.
    public func obtainIdentity(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        try await exclusively { log throws(ProviderError) in try await self.obtain(interaction, &log) }
    }

    /// Deletes the stored identities, then obtains a new one.
    ///
    /// If a deletion fails, the operation ends without asking for a new identity. The most preferred provider is the
    /// last to delete its identity, so that it is still stored then. If no new identity is obtained, none is stored.
    ///
    /// With a vault, the application must be registered: only the provider that registered is asked, and the connection stays.
    ///
    /// - Throws: Errors of the deletion; as ``obtainIdentity(_:)``. With a vault also `vaultLocked`, `operationNotAllowed` if the
    ///   application is not registered, and `noCertificateProvider` for a registration with a password.
    public func updateCertificate(_ interaction: any UserInteraction) async throws(ProviderError) -> Identity {
        if registration != nil { return try await updateRegisteredCertificate(interaction) }
        return try await exclusively { log throws(ProviderError) in
            for (index, provider) in self.providers.enumerated().reversed() {
                if let error = await self.sequence.delete(provider, &log) {
                    log.appendNotAsked(
                        self.providers[..<index].reversed(), .delete, because: "'\(provider.id)' failed to delete")
                    throw error
                }
            }
            return try await self.obtain(interaction, &log)
        }
    }

    /// Deletes every stored identity. Continues after a provider that fails.
    ///
    /// - Throws: The first error.
    public func deleteStoredCertificates() async throws(ProviderError) {
        try await deleteStoredCertificates(known: nil)
    }

    /// As ``deleteStoredCertificates()``.
    ///
    /// - Parameter known: The stored identity, where the caller has read it: for the event.
    package func deleteStoredCertificates(known: Identity?) async throws(ProviderError) {
        try await exclusively { log throws(ProviderError) in
            var first: ProviderError?
            for provider in try await self.candidates() {
                let error = await self.sequence.delete(provider, &log, known: known)
                first = first ?? error
            }
            if let first { throw first }
        }
    }

    /// Has the certificate of the stored identity revoked by its issuer. The identity stays in the store.
    ///
    /// - Throws: `notFound` if no identity is stored, `operationNotAllowed` if its provider cannot revoke; errors of the provider.
    public func revokeStoredCertificate(
        _ reason: RevocationReason, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        try await exclusively { log throws(ProviderError) in
            guard let stored = try await self.stored(&log) else {
                throw ProviderError(.notFound, "No identity is stored, so no certificate can be revoked.")
            }
            let id = stored.provenance.provider
            guard let provider = self.providers.first(where: { $0.id == id }), let revocation = provider.revocation
            else {
                throw ProviderError(
                    .operationNotAllowed,
                    "The provider '\(id)' cannot have its certificate revoked; ask the administrator of its CA.",
                    provider: id)
            }
            try await revocation.revokeStoredCertificate(reason, interaction)
            self.sequence.note(.revoked, stored, of: provider)
        }
    }

    /// Closes the accounts that servers have for this host, where providers have such. For good: a new one is made when an identity is
    /// next obtained.
    ///
    /// - Throws: The first error of a provider.
    public func closeAccounts(_ interaction: any UserInteraction) async throws(ProviderError) {
        try await exclusively { _ throws(ProviderError) in
            for provider in try await self.candidates() { try await provider.revocation?.closeAccount(interaction) }
        }
    }

    /// Returns a sentence for each object that ``deleteStoredCertificates()`` destroys outside this host's store, such as
    /// a key in a token, so that the user can be asked first. Never prompts.
    ///
    /// - Throws: The first error of a provider.
    public func announcedDeletions() async throws(ProviderError) -> [String] {
        try await unlocked { () throws(ProviderError) in
            var sentences: [String] = []
            for provider in try await candidates() {
                do throws(ProviderError) {
                    sentences += try await provider.deletions?.announcedDeletions() ?? []
                } catch {
                    throw error.attributed(to: provider.id)
                }
            }
            return sentences
        }
    }

    /// Returns which provider would be chosen now, and why. Does not ask a provider for an identity: looks at the
    /// stored ones, then at the listings of providers with ``/CertificateProviding/IdentityListing``. Never prompts.
    /// Changes nothing, except that a token whose PIN is configured is logged in to.
    ///
    /// - Throws: `noCertificateProvider`, `operationNotAllowed`; with a vault also `vaultLocked` and `storeReadFailed`. Errors of
    ///   providers are in the decisions.
    package func explain() async throws(ProviderError) -> Explanation {
        try requireProviders()
        try operations.begin()
        defer { operations.end() }
        return try await unlocked { () throws(ProviderError) in
            let candidates = try await candidates()
            var log = sequence.log()
            do throws(ProviderError) {
                guard try await sequence.stored(of: candidates, &log) == nil else {
                    let chosen = log.decisions.first { $0.outcome == .identity }?.provider
                    return Explanation(chosen: chosen, decisions: log.decisions)
                }
            } catch {
                return Explanation(chosen: nil, decisions: log.decisions)
            }
            let chosen = await sequence.forecast(of: candidates, &log)
            return Explanation(chosen: chosen, decisions: log.decisions)
        }
    }
}

public import CertificateProviding
public import FoundationEssentials
import Logging

extension LogonManager {
    /// Returns when to renew an identity of this manager, by the parameter `renew-at` of its provider, and the last advice of its
    /// issuer. Blocks for a small file at most.
    public func renewalSchedule(for identity: Identity) -> RenewalSchedule {
        RenewalSchedule(
            for: identity, policy: sequence[identity.provenance.provider]?.renewalPolicy ?? .init(),
            advice: adviser(of: identity)?.advice(on: identity))
    }

    private func adviser(of identity: Identity) -> (any RenewalAdvising)? {
        providers.first { $0.id == identity.provenance.provider }?.advice
    }

    /// Asks the issuer of a stored identity when to renew it, unless it was asked a short time ago.
    ///
    /// - Returns: The new schedule; `nil` if the issuer was not asked.
    package func advisedSchedule(for identity: Identity) async -> RenewalSchedule? {
        guard let adviser = adviser(of: identity), await adviser.refreshAdvice(on: identity) else { return nil }
        return renewalSchedule(for: identity)
    }

    /// Returns the stored identity, renewed if it is due. The stored one stays until the new one is available. A file of the
    /// provider that has changed is taken at once. An issuer that gives advice is asked for it first.
    ///
    /// Only the provider of the stored identity is asked. An identity of another provider would change the identity of
    /// this host whenever a server is down at the wrong time. If no identity is stored, one is obtained as in
    /// ``obtainIdentity(_:)``.
    ///
    /// Reads the store each time, so that only the first of several processes that share it renews.
    ///
    /// - Parameter now: The wall clock.
    /// - Throws: Errors of the provider about its stored or new identity; `pending` also if it returns the same
    ///   certificate again. `expired` in place of `pending`, `timedOut` and `operationNotAllowed` if the stored one has expired.
    public func renewIdentityIfDue(
        at now: Date, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        try await exclusively { log throws(ProviderError) in
            guard let current = try await self.stored(&log) else { return try await self.obtain(interaction, &log) }
            _ = await self.adviser(of: current)?.refreshAdvice(on: current)
            guard self.renewalSchedule(for: current).isDue(at: now) else {
                return try await self.refreshed(current, interaction, &log)
            }
            return try await self.replacement(
                of: current, because: "the stored identity was due for renewal", at: now, interaction, &log)
        }
    }

    /// Asks the provider of the stored identity, which the last decision is about, for another one.
    func replacement(
        of stored: Identity, because reason: String, at now: Date, _ interaction: any UserInteraction,
        _ log: inout DecisionLog, checking check: ProviderCheck = { _ in }
    ) async throws(ProviderError) -> Identity {
        guard let id = log.decisions.first(where: { $0.outcome == .identity })?.provider,
            let provider = providers.first(where: { $0.id == id })
        else { return stored }
        do throws(ProviderError) {
            return try await sequence.obtain(from: provider, because: reason, &log) {
                () throws(ProviderError) in
                try await check(provider)
                let identity = try await provider.getCertificate(interaction)
                try identity.requireSuccession(to: stored, at: now)
                return identity
            }
        } catch {
            throw error.replacing(stored, at: now)
        }
    }

    /// Returns what announces that an identity's provider may have a new one; `nil` if the provider does not.
    package func updates(for identity: Identity) -> (any UpdateAnnouncing)? {
        providers.first { $0.id == identity.provenance.provider }?.updates
    }

    /// Returns a stored identity, or that of the files that it was read from, if they have another one by now.
    ///
    /// - Throws: `operationNotAllowed` while another operation is in progress and the files have changed; `userCancelled`.
    package func refreshed(
        _ stored: Identity, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        guard let updates = updates(for: stored), await sequence.hasUpdate(updates, of: stored.provenance.provider)
        else {
            return stored
        }
        return try await exclusively { log throws(ProviderError) in
            try await self.refreshed(stored, interaction, &log)
        }
    }

    /// Returns the identity of the files that a stored one was read from, if they have another one by now; else the stored one,
    /// also if that of the files cannot be taken.
    ///
    /// - Throws: `userCancelled` if the task is cancelled.
    func refreshed(
        _ stored: Identity, _ interaction: any UserInteraction, _ log: inout DecisionLog
    ) async throws(ProviderError) -> Identity {
        let id = stored.provenance.provider
        guard let provider = providers.first(where: { $0.id == id }), let updates = provider.updates,
            await sequence.hasUpdate(updates, of: id)
        else { return stored }
        do throws(ProviderError) {
            return try await sequence.obtain(from: provider, because: "its source has changed", &log) {
                () throws(ProviderError) in
                try await provider.getCertificate(interaction)
            }
        } catch {
            guard !Task.isCancelled else { throw error }
            sequence[id]?.logger.warning(
                "the source of the stored identity has changed and cannot be used; the stored identity stays",
                metadata: ["code": "\(error.code)", "reason": "\(error.message)"])
            return stored
        }
    }

    /// Returns what an identity's provider has in its place by now: the stored identity if that is another one, otherwise one
    /// that is obtained.
    ///
    /// - Throws: Errors of the provider; `pending`, or `expired`, if it returns the same certificate again.
    package func successor(
        of current: Identity, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        try await exclusively { log throws(ProviderError) in
            if let stored = try await self.stored(&log), !stored.isSame(as: current, withChain: true) { return stored }
            let id = current.provenance.provider
            guard let provider = self.providers.first(where: { $0.id == id }) else {
                return try await self.obtain(interaction, &log)
            }
            return try await self.sequence.obtain(from: provider, because: "the provider has announced an update", &log)
            {
                () throws(ProviderError) in
                let identity = try await provider.getCertificate(interaction)
                if identity.certificateChain == current.certificateChain {
                    try identity.requireSuccession(to: current, at: self.now())
                }
                return identity
            }
        }
    }

    /// Looks at the directories of the store in which the providers' identities are: equal looks mean that none has changed. Empty for a
    /// store without directories.
    package func lookAtStore() async -> [FileStamp?] {
        let paths = providers.flatMap { sequence[$0.id]?.entryDirectories ?? [] }
        guard !paths.isEmpty else { return [] }
        let look = try? await executor.run { () throws(ProviderError) in paths.map { FileStamp(of: $0) } }
        return look ?? []
    }

    /// Asks the provider of an identity that is now in use to destroy the replaced one
    /// (``/CertificateProviding/ReplacedIdentityDiscarding``). `RenewingIdentity` does this by itself.
    ///
    /// - Throws: Errors of the provider. The identity in use is not affected.
    public func discardReplaced(
        by identity: Identity, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        let id = identity.provenance.provider
        do throws(ProviderError) {
            try await unlocked { () throws(ProviderError) in
                try await providers.first { $0.id == id }?.replacement?.discardReplaced(by: identity, interaction)
            }
        } catch {
            throw error.attributed(to: id)
        }
    }
}

extension ProviderDescriptor {
    /// Returns the parameters that the provider gets: without those that only the manager reads, unless the provider
    /// documents them too.
    func ownParameters(of parameters: ProviderParameters) -> ProviderParameters {
        let name = Parameter<RenewalPoint>.renewAt.name
        guard !self.parameters.contains(where: { $0.name == name }) else { return parameters }
        var own = parameters
        own[name] = nil
        return own
    }
}

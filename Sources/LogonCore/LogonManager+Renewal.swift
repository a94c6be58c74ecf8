public import CertificateProviding
public import FoundationEssentials

extension LogonManager {
    /// When to renew an identity that came from this manager, by the parameter `renew-at` of its provider.
    public func renewalSchedule(for identity: Identity) -> RenewalSchedule {
        RenewalSchedule(for: identity.certificate, policy: renewalPolicies[identity.provenance.provider] ?? .init())
    }

    /// Returns the stored identity, renewed if that is due. The stored one stays until the new one is there.
    ///
    /// Only the provider that the stored identity is from is asked: with another one's identity, this host would become
    /// somebody else whenever a server is down at the wrong time. When none is stored, one is obtained as in
    /// ``obtainIdentity(_:)``.
    ///
    /// Looks at the store each time, so that of several processes that share one only the first renews.
    ///
    /// - Parameter now: The wall clock.
    /// - Throws: What the provider says about its stored identity and about a new one; `pending` also when it gives the
    ///   same certificate again.
    public func renewIdentityIfDue(
        at now: Date, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> Identity {
        try await exclusively { log throws(CertificateProviderError) in
            guard let current = try await self.stored(&log) else { return try await self.obtain(interaction, &log) }
            guard self.renewalSchedule(for: current).isDue(at: now),
                let id = log.decisions.first(where: { $0.outcome == .identity })?.provider,
                let provider = self.providers.first(where: { $0.id == id })
            else { return current }
            let start = self.uptime()
            do throws(CertificateProviderError) {
                let identity = try await provider.getCertificate(interaction)
                try identity.requireSuccession(to: current)
                log.append(id, .get, .identity, reason: "the stored identity was due", since: start)
                return identity
            } catch {
                let error = error.attributed(to: id)
                log.append(id, .get, .stopped, error: error, since: start)
                throw error
            }
        }
    }

    /// Lets the provider of an identity that is in use now destroy what that has replaced
    /// (``/CertificateProviding/ReplacedIdentityDiscarding``). ``RenewingIdentity`` does that by itself.
    ///
    /// - Throws: What the provider meets. The identity is as good without.
    public func discardReplaced(
        by identity: Identity, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        let provider = providers.first { $0.id == identity.provenance.provider }
        try await provider?.replacement?.discardReplaced(by: identity, interaction)
    }
}

extension ProviderDescriptor {
    /// Those that the provider is given: not what the manager alone reads, unless the provider wants to know it too.
    func ownParameters(of parameters: ProviderParameters) -> ProviderParameters {
        let name = ParameterDescriptor.renewAt.name
        guard !self.parameters.contains(where: { $0.name == name }) else { return parameters }
        var own = parameters
        own[name] = nil
        return own
    }
}

public import CertificateProviding
import Synchronization

extension LogonManager {
    /// Returns the first stored identity, or `nil` when no provider has one. No network and no prompt. Blocks as long
    /// as the providers do: most look at a small file, one for tokens calls into the token's module, for at most its
    /// `timeout`.
    ///
    /// - Throws: The first error, of a provider that could not look.
    public func storedIdentity() throws(CertificateProviderError) -> Identity? {
        try requireProviders()
        var log = DecisionLog(uptime: uptime)
        defer { state.withLock { $0.decisions = log.decisions } }
        for (index, provider) in providers.enumerated() {
            let start = uptime()
            let result = Result { () throws(CertificateProviderError) in try provider.getStoredCertificate() }
            if let identity = try log.take(result, of: provider, before: providers[(index + 1)...], since: start) {
                return identity
            }
        }
        return nil
    }

    /// Returns the first stored identity, and obtains one when there is none.
    ///
    /// - Throws: As ``storedIdentity()`` and ``obtainIdentity(_:)``.
    public func identity(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        try await exclusively { log throws(CertificateProviderError) in
            if let identity = try await self.stored(&log) { return identity }
            return try await self.obtain(interaction, &log)
        }
    }

    /// Asks the providers for a new identity, whatever is stored. The one that answers replaces its stored identity;
    /// when none does, what was stored still is.
    ///
    /// - Throws: The error that stopped, unchanged. When every provider moved on: the error of the only one, or else
    ///   one with the code of the most preferred that lists what each said. `userCancelled` when the task is cancelled
    ///   between two providers.
    public func obtainIdentity(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity {
        try await exclusively { log throws(CertificateProviderError) in try await self.obtain(interaction, &log) }
    }

    /// Forgets the stored identities, then obtains a new one.
    ///
    /// A deletion that fails stops, and no new identity is asked for. The most preferred provider is the last to
    /// forget, so that its identity is still there then. When no new one is obtained, there is none.
    ///
    /// - Throws: What a provider says about deleting; as ``obtainIdentity(_:)``.
    public func updateCertificate(_ interaction: any UserInteraction) async throws(CertificateProviderError) -> Identity
    {
        try await exclusively { log throws(CertificateProviderError) in
            for (index, provider) in self.providers.enumerated().reversed() {
                if let error = await self.delete(provider, &log) {
                    log.appendNotAsked(
                        self.providers[..<index].reversed(), .delete, because: "'\(provider.id)' could not delete")
                    throw error
                }
            }
            return try await self.obtain(interaction, &log)
        }
    }

    /// Forgets every stored identity. Goes on past a provider that fails.
    ///
    /// - Throws: The first error.
    public func deleteStoredCertificates() async throws(CertificateProviderError) {
        try await exclusively { log throws(CertificateProviderError) in
            var first: CertificateProviderError?
            for provider in self.providers {
                let error = await self.delete(provider, &log)
                first = first ?? error
            }
            if let first { throw first }
        }
    }

    /// Says which provider would be chosen now, and why, without asking any for an identity: what is stored is looked
    /// at, then what providers with ``/CertificateProviding/IdentityListing`` see. Prompts for nothing, and changes
    /// nothing, except that a token whose PIN is configured is logged into.
    ///
    /// - Throws: `noCertificateProvider`, `operationNotAllowed`. What providers throw is in the decisions.
    public func explain() async throws(CertificateProviderError) -> Explanation {
        try requireProviders()
        try begin()
        defer { state.withLock { $0.isBusy = false } }
        var log = DecisionLog(uptime: uptime)
        do throws(CertificateProviderError) {
            guard try await stored(&log) == nil else {
                let chosen = log.decisions.first { $0.outcome == .identity }?.provider
                return Explanation(chosen: chosen, decisions: log.decisions)
            }
        } catch {
            return Explanation(chosen: nil, decisions: log.decisions)
        }
        let chosen = await forecast(&log)
        return Explanation(chosen: chosen, decisions: log.decisions)
    }
}

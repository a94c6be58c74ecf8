import CertificateProviding
import FoundationEssentials
import Logon

/// The source of new identities for a ``RenewingIdentity``: a manager or a provider.
struct RenewalSource: Sendable {
    typealias Ask = @Sendable (_ now: Date) async throws(ProviderError) -> Identity
    typealias Discard = @Sendable (_ current: Identity) async throws(ProviderError) -> Void

    let schedule: @Sendable (Identity) -> RenewalSchedule
    /// Asks the issuer for its advice. Returns the new schedule; `nil` if it was not asked.
    let advised: @Sendable (Identity) async -> RenewalSchedule?
    /// Returns the stored identity if it is not due; otherwise a new one.
    let renewIfDue: Ask
    /// Returns a new identity.
    let renew: Ask
    /// Returns what the provider has in place of the current identity by now.
    let successor: @Sendable (_ current: Identity) async throws(ProviderError) -> Identity
    /// Returns the stored identity; `nil` if there is none.
    let stored: @Sendable () async throws(ProviderError) -> Identity?
    /// Looks at the store: equal looks mean that it has not changed. Empty if that does not show.
    let lookAtStore: @Sendable () async -> [FileStamp?]
    /// Returns what announces that there may be a new identity; nil if the provider does not.
    let updates: @Sendable (_ current: Identity) -> (any UpdateAnnouncing)?
    /// Destroys the identity that the current one has replaced.
    let discardReplaced: Discard
    /// Closes the open resources of the provider.
    let shutdown: @Sendable () async -> Void

    /// - Parameter manager: Returns the manager to use now.
    static func manager(
        _ manager: @escaping @Sendable () -> LogonManager, shutdown: @escaping @Sendable () async -> Void
    ) -> Self {
        Self(
            schedule: { manager().renewalSchedule(for: $0) },
            advised: { await manager().advisedSchedule(for: $0) },
            renewIfDue: { now throws(ProviderError) in
                try await manager().renewIdentityIfDue(at: now, NoUserInteraction())
            },
            renew: { _ throws(ProviderError) in try await manager().obtainIdentity(NoUserInteraction()) },
            successor: { current throws(ProviderError) in
                try await manager().successor(of: current, NoUserInteraction())
            },
            stored: { () throws(ProviderError) in try await manager().storedIdentity() },
            lookAtStore: { await manager().lookAtStore() },
            updates: { manager().updates(for: $0) },
            discardReplaced: { current throws(ProviderError) in
                try await manager().discardReplaced(by: current, NoUserInteraction())
            },
            shutdown: shutdown)
    }

    static func provider(
        _ provider: any CertificateProvider, _ policy: RenewalPolicy, _ executor: BlockingExecutor
    ) -> Self {
        let schedule = { @Sendable (identity: Identity) in
            RenewalSchedule(for: identity, policy: policy, advice: provider.advice?.advice(on: identity))
        }
        let stored = { @Sendable () async throws(ProviderError) in
            try await executor.run { () throws(ProviderError) in try provider.getStoredCertificate() }
        }
        return Self(
            schedule: schedule,
            advised: { identity in
                guard await provider.advice?.refreshAdvice(on: identity) == true else { return nil }
                return schedule(identity)
            },
            renewIfDue: { now throws(ProviderError) in
                if let stored = try await stored(), !schedule(stored).isDue(at: now) { return stored }
                return try await provider.getCertificate(NoUserInteraction())
            },
            renew: { _ throws(ProviderError) in try await provider.getCertificate(NoUserInteraction()) },
            successor: { current throws(ProviderError) in
                if let stored = try await stored(), !stored.isSame(as: current, withChain: true) { return stored }
                return try await provider.getCertificate(NoUserInteraction())
            },
            stored: stored,
            // The storage of a provider is known to its manager alone.
            lookAtStore: { [] },
            updates: { _ in provider.updates },
            discardReplaced: { current throws(ProviderError) in
                try await provider.replacement?.discardReplaced(by: current, NoUserInteraction())
            },
            shutdown: { await provider.shutdown() })
    }
}

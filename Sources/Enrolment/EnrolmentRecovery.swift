import CertificateProviding
import FoundationEssentials
import Logging
import ProviderTransport

/// The order that replaces an identity that has expired, by a key that proves where it lives. Such a host needs no person and no
/// secret, so a whole fleet may come back at the same moment: each waits a random time, and orders at most once an hour.
struct EnrolmentRecovery {
    private let provider: EnrollingProvider
    private var environment: ProviderEnvironment { provider.environment }

    private static let interval = 3600.0
    private static let longestWait = Duration.seconds(60)

    /// Not secret.
    private struct Record: Codable {
        static let format = VersionedRecord<Self>(
            of: "the last recovery", ifDamaged: "delete the identity to discard it")
        let orderedAt: Date
    }

    /// - Returns: `nil` for an identity that is not there or has not expired, whose key does not attest, or whose server does not
    ///   take that for a proof; and while an order is under way, which is gone on with. Of an order
    ///   that has ended, the key may be there, and no state.
    init?(of identity: Identity?, _ provider: EnrollingProvider) async throws(ProviderError) {
        guard provider.server.trustsAttestation, let identity, identity.key.attester != nil,
            identity.certificate.status(at: provider.environment.now()) == .expired,
            try await provider.environment.executor.run({ () throws(ProviderError) in try provider.record() })?.state
                .isEmpty != false
        else { return nil }
        self.provider = provider
    }

    /// Waits a random time, before the server is asked.
    ///
    /// - Throws: `unavailable` if the last order was less than an hour ago, with the time until then; `userCancelled`.
    func wait() async throws(ProviderError) {
        let record = try await environment.executor.run { [provider] () throws(ProviderError) in
            try provider.environment.storage.record(named: provider.recoveryRecordName)
        }
        let last = try record.flatMap { record throws(ProviderError) in try Record.format.undamagedContent(of: record) }
        // A clock that was set back must not keep the host away for long.
        if let age = last.map({ environment.now().timeIntervalSince($0.orderedAt) }), (0..<Self.interval).contains(age)
        {
            let rest = Duration.seconds(Self.interval - age)
            throw ProviderError(
                .unavailable,
                """
                The identity has expired, and an identity that has expired is ordered anew at most once an hour; ask again \
                after \((environment.now() + rest / .seconds(1)).formatted(.iso8601)).
                """, retryAfter: rest)
        }
        let policy = environment.transport.retryPolicy
        do { try await policy.sleep(Self.longestWait * policy.random()) } catch {
            throw ProviderError(.userCancelled, "The enrolment was cancelled before the server was asked.")
        }
    }

    /// Writes down that an order follows. Before it, since the process may end in between.
    func note() async throws(ProviderError) {
        let encoded = try Record.format.record(of: Record(orderedAt: environment.now()))
        try await environment.executor.run { [provider] () throws(ProviderError) in
            try provider.environment.storage.updateRecord(named: provider.recoveryRecordName) { _ in encoded }
        }
        environment.logger.notice("the identity has expired; ordering it anew with the key's attestation")
    }
}

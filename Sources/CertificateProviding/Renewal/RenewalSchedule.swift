public import FoundationEssentials

/// The settings that a renewal is planned with.
public struct RenewalPolicy: Sendable, Hashable {
    /// The point in the lifetime at which a certificate is renewed.
    public var point: RenewalPoint
    /// The time before expiry at which a certificate is due at the latest, whatever ``point`` is; `nil` for a twentieth
    /// of its lifetime. At most two thirds of the lifetime are used.
    public var margin: Duration?

    /// Creates a policy.
    public init(point: RenewalPoint = .standard, margin: Duration? = nil) {
        self.point = point
        self.margin = margin
    }
}

/// The times at which an identity's certificate is renewed. It ends with the first certificate of its chain.
///
/// Hosts that got their certificates in the same minute must not all renew in the same minute. So a certificate is due
/// up to a tenth of the way to the renewal point earlier, never later. The offset is derived from the certificate's
/// fingerprint only: every process, also after a restart, computes the same time, and the next certificate gets another
/// offset, so that the hosts spread further with each renewal.
public struct RenewalSchedule: Sendable, Hashable {
    /// The start of the validity period.
    public let start: Date
    /// The time from which the certificate is due for renewal.
    public let due: Date
    /// The start of the margin before expiry. A server that answers cannot postpone a renewal beyond it.
    package let latest: Date
    /// The end of the validity period.
    public let expiry: Date

    /// The rule that has decided on ``due``.
    public let rule: RenewalRule

    /// Creates the schedule of an identity: from the start of its leaf to the earliest end in its chain.
    ///
    /// - Parameter advice: The issuer's. It brings the renewal forward, also to now, but not into the first hour, or twentieth of
    ///   the lifetime. It postpones the renewal until the margin before expiry at most, and not beyond a renewal point other than the
    ///   default.
    package init(
        for identity: Identity, policy: RenewalPolicy = RenewalPolicy(), advice: RenewalAdvice? = nil
    ) {
        self.init(for: identity.certificate, expiring: identity.expiry, policy: policy, advice: advice)
    }

    /// Creates the schedule of a leaf.
    ///
    /// - Parameter expiry: The earliest end in its chain. One before the leaf's start is that of a certificate which peers do
    ///   not need, and with which each renewal would be due at once: the leaf's end counts then.
    package init(
        for leaf: X509Certificate, expiring expiry: Date, policy: RenewalPolicy, advice: RenewalAdvice? = nil
    ) {
        let expiry = expiry < leaf.notValidBefore ? leaf.notValidAfter : expiry
        let digest = leaf.sha256Fingerprint.prefix(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        self.init(
            from: leaf.notValidBefore, to: expiry, policy: policy, advice: advice, draw: Double(digest >> 11) * 0x1p-53)
    }

    /// Creates the schedule of a validity period.
    ///
    /// - Parameter draw: From 0 to 1: how much earlier than the renewal point, as a share of the maximum.
    package init(
        from start: Date, to expiry: Date, policy: RenewalPolicy, advice: RenewalAdvice? = nil, draw: Double
    ) {
        let lifetime = max(0, expiry.timeIntervalSince(start))
        func before(expiry remaining: Duration) -> Double { max(lifetime - remaining / .seconds(1), lifetime / 3) }
        let chosen =
            switch policy.point.kind {
            case .share(let share): lifetime * share
            case .beforeExpiry(let remaining): before(expiry: remaining)
            }
        let last = before(expiry: policy.margin ?? .seconds(lifetime / 20))
        let point = min(chosen, last)
        self.start = start
        self.latest = start.addingTimeInterval(last)
        self.expiry = expiry
        let own = start.addingTimeInterval(point * (1 - 0.1 * draw))
        guard let advice else {
            self.due = own
            self.rule = chosen <= last ? .point : .margin
            return
        }
        // Whatever the issuer says, it cannot have a new certificate renewed at once, again and again.
        let earliest = start.addingTimeInterval(min(3600, lifetime / 20))
        let window = advice.window
        let advised = window.lowerBound.addingTimeInterval(
            draw * window.upperBound.timeIntervalSince(window.lowerBound))
        let limit = policy.point == .standard ? latest : own
        self.due = max(min(advised, limit), min(earliest, limit))
        self.rule = advised <= limit ? .advice : policy.point == .standard ? .margin : .point
    }

    /// Whether the certificate is due for renewal at `now`.
    package func isDue(at now: Date) -> Bool { now >= due }
}

public import FoundationEssentials

/// What a renewal is planned by.
public struct RenewalPolicy: Sendable, Hashable {
    public var point: RenewalPoint
    /// The time before expiry at which a certificate is due at the latest, whatever ``point`` says; `nil` for a
    /// twentieth of its lifetime. Not more than two thirds of it count.
    public var margin: Duration?

    public init(point: RenewalPoint = .standard, margin: Duration? = nil) {
        self.point = point
        self.margin = margin
    }
}

/// When a certificate is to be renewed.
///
/// Hosts that got their certificates in the same minute must not all ask for new ones in the same minute. So each is
/// due up to a tenth of the way to the renewal point before it: never after, since the point is what a person has
/// chosen. How much is drawn from the certificate's fingerprint, and from nothing else. Every process, before and after
/// a restart, then comes to the same answer without having to remember one, and the next certificate draws anew, so
/// that a crowd disperses further with each renewal.
public struct RenewalSchedule: Sendable, Hashable {
    /// The beginning of the validity.
    public let start: Date
    /// From when on to renew.
    public let due: Date
    /// The margin before expiry: no server that answers may put a renewal off beyond that.
    package let latest: Date
    /// The end of the validity.
    public let expiry: Date

    public init(for certificate: X509Certificate, policy: RenewalPolicy = RenewalPolicy()) {
        let digest = certificate.sha256Fingerprint.prefix(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        self.init(
            from: certificate.notValidBefore, to: certificate.notValidAfter, policy: policy,
            draw: Double(digest >> 11) * 0x1p-53)
    }

    /// - Parameter draw: From 0 to 1: how much before the renewal point.
    package init(from start: Date, to expiry: Date, policy: RenewalPolicy, draw: Double) {
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
        self.due = start.addingTimeInterval(point * (1 - 0.1 * draw))
    }

    public func isDue(at now: Date) -> Bool { now >= due }
}

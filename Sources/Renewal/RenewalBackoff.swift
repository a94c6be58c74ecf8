import CertificateProviding

/// How long to wait after a renewal that came to nothing: exponentially longer, drawn from the whole range (full
/// jitter), so that hosts that failed together do not come back together.
public struct RenewalBackoff: Sendable, Hashable {
    /// The shortest wait, to which what is drawn is added.
    public var floor: Duration
    /// The longest that may be drawn after the first failure; it doubles with each further one.
    public var base: Duration
    /// The longest that may be drawn at all. Until the certificate has expired, a sixteenth of the time from the
    /// renewal to expiry bounds it too, so that several attempts fit whatever the lifetime is.
    public var ceiling: Duration

    public init(
        floor: Duration = .seconds(30), base: Duration = .seconds(60), ceiling: Duration = .seconds(3600)
    ) {
        self.floor = floor
        self.base = base
        self.ceiling = ceiling
    }

    /// A server's `Retry-After` counts up to here, where it may not outlast a certificate sooner.
    static let longestRetryAfter = Duration.seconds(86_400)

    /// These will not be different by themselves. Asking often is of no use, and may lock an account.
    private static let needsAPerson: Set<CertificateProviderError.Code> = [
        .wrongPassword, .pinIncorrect, .pinFinalTry, .pinLocked, .rejected, .interactionRequired, .userCancelled,
        .vaultLocked, .configurationInvalid, .unsupportedParameter,
    ]

    /// - Parameters:
    ///   - failures: How many there were one after the other; at least one.
    ///   - window: From the renewal to expiry; `nil` when the certificate has expired.
    ///   - longestDelay: How long a server may postpone the next attempt; `nil` when the certificate has expired.
    ///   - draw: From 0 to 1.
    func delay(
        after error: CertificateProviderError, failures: Int, window: Duration?, longestDelay: Duration?, draw: Double
    ) -> Duration {
        if let retryAfter = error.retryAfter {
            let longest = max(min(Self.longestRetryAfter, longestDelay ?? Self.longestRetryAfter), floor)
            let wait = min(max(retryAfter, floor), longest)
            let spread = wait / 10 * draw  // others were told the same
            return wait + spread <= longest ? wait + spread : longest - spread
        }
        let limit = window.map { min(ceiling, $0 / 16) } ?? ceiling
        // A doubling beyond this one exceeds any ceiling, and would at last exceed what a Duration holds.
        let isSlow = Self.needsAPerson.contains(error.code)
        let grown = isSlow ? limit : base * (1 << min(max(failures, 1) - 1, 20))
        return floor + min(grown, limit) * draw
    }
}

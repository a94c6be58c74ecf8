package import CertificateProviding

/// The pauses after failed renewals: exponential backoff with full jitter, so that hosts that failed together do not
/// retry together.
public struct RenewalBackoff: Sendable, Hashable {
    /// The minimum pause; the random part is added to it.
    public var floor: Duration
    /// The maximum of the random part after the first failure; it doubles with each further failure.
    public var base: Duration
    /// The maximum of the random part. It is also limited to a sixteenth of the time from the renewal to expiry, so that
    /// several attempts fit into any lifetime; after expiry to ``base`` if that is longer.
    public var ceiling: Duration

    /// Creates a backoff.
    public init(
        floor: Duration = .seconds(30), base: Duration = .seconds(60), ceiling: Duration = .seconds(3600)
    ) {
        self.floor = floor
        self.base = base
        self.ceiling = ceiling
    }

    /// The maximum `Retry-After` that is respected before the certificate expires.
    static let longestRetryAfter = Duration.seconds(86_400)

    /// Failures that need the user. Frequent retries are useless, and may lock an account.
    private static let needsAPerson: Set<ProviderError.Code> = [
        .wrongPassword, .pinIncorrect, .pinFinalTry, .pinLocked, .rejected, .interactionRequired, .userCancelled,
        .vaultLocked, .vaultDestroyed, .configurationMissing, .configurationInvalid, .unsupportedParameter,
        .noCertificateProvider, .serverNotTrusted,
    ]

    /// Returns the pause after a failure.
    ///
    /// - Parameters:
    ///   - failures: The number of consecutive failures, at least one.
    ///   - window: The time from the renewal to expiry.
    ///   - longestDelay: The maximum by which a server may postpone the next attempt; `nil` if the certificate has
    ///     expired: then as long as the longest pause after a failure.
    ///   - draw: A random number from 0 to 1.
    package func delay(
        after error: ProviderError, failures: Int, window: Duration, longestDelay: Duration?, draw: Double
    ) -> Duration {
        let limit = min(ceiling, longestDelay == nil ? max(window / 16, base) : window / 16)
        if let retryAfter = error.retryAfter {
            let longest = max(min(Self.longestRetryAfter, longestDelay ?? floor + limit), floor)
            let wait = min(max(retryAfter, floor), longest)
            let spread = wait / 10 * draw  // others were told the same
            return wait + spread <= longest ? wait + spread : longest - spread
        }
        // A doubling beyond this one exceeds any ceiling, and would at last exceed what a Duration holds.
        let isSlow = Self.needsAPerson.contains(error.code)
        let grown = isSlow ? limit : base * (1 << min(max(failures, 1) - 1, 20))
        return floor + min(grown, limit) * draw
    }
}

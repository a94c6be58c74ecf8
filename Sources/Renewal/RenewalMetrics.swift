package import CertificateProviding
package import CoreMetrics
import FoundationEssentials

/// The metrics of an identity. Each has the dimension `provider`.
package struct RenewalMetrics: Sendable {
    enum Result: String { case renewed, pending, failed }

    private let factory: any MetricsFactory
    private let dimensions: [(String, String)]
    private let expiration: Gauge
    private let nextAttempt: Gauge

    package init(_ provider: ProviderID, factory: any MetricsFactory) {
        self.factory = factory
        dimensions = [("provider", provider.rawValue)]
        expiration = Gauge(
            label: "certprov_certificate_expiration_timestamp_seconds", dimensions: dimensions, factory: factory)
        nextAttempt = Gauge(
            label: "certprov_renewal_next_attempt_timestamp_seconds", dimensions: dimensions, factory: factory)
    }

    /// Records the expiry, in seconds since 1970.
    package func presents(_ identity: Identity) {
        expiration.record(identity.expiry.timeIntervalSince1970)
    }

    /// Removes the gauges: another provider has taken over.
    func end() {
        expiration.destroy()
        nextAttempt.destroy()
    }

    func plans(attemptAt date: Date) { nextAttempt.record(date.timeIntervalSince1970.rounded()) }

    func count(_ result: Result) {
        Counter(
            label: "certprov_renewals_total", dimensions: dimensions + [("result", result.rawValue)], factory: factory
        ).increment()
    }

    func countFailure(_ code: ProviderError.Code) {
        Counter(
            label: "certprov_renewal_failures_total", dimensions: dimensions + [("code", code.rawValue)],
            factory: factory
        ).increment()
    }
}

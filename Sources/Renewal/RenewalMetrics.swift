package import CertificateProviding
package import CoreMetrics
package import FoundationEssentials

/// The metrics of an identity. Each has the dimension `provider`, and the factory may add `identity`.
package struct RenewalMetrics: Sendable {
    enum Result: String { case renewed, pending, failed }

    private let factory: any MetricsFactory
    private let dimensions: [(String, String)]
    private let expiration: Gauge
    private let issue: Gauge
    private let nextAttempt: Gauge
    private let failing: Gauge

    package init(_ provider: ProviderID, factory: any MetricsFactory) {
        self.factory = factory
        dimensions = [("provider", provider.rawValue)]
        expiration = Gauge(
            label: "certprov_certificate_expiration_timestamp_seconds", dimensions: dimensions, factory: factory)
        issue = Gauge(label: "certprov_certificate_issue_timestamp_seconds", dimensions: dimensions, factory: factory)
        failing = Gauge(label: "certprov_renewal_failing", dimensions: dimensions, factory: factory)
        nextAttempt = Gauge(
            label: "certprov_renewal_next_attempt_timestamp_seconds", dimensions: dimensions, factory: factory)
    }

    /// Records the expiry and the beginning of the leaf's validity, in seconds since 1970.
    package func presents(_ identity: Identity) {
        issue.record(identity.certificate.notValidBefore.timeIntervalSince1970)
        expiration.record(identity.expiry.timeIntervalSince1970)
    }

    /// Removes the gauges: another provider has taken over.
    func end() {
        expiration.destroy()
        issue.destroy()
        failing.destroy()
        nextAttempt.destroy()
    }

    package func plans(attemptAt date: Date) { nextAttempt.record(date.timeIntervalSince1970.rounded()) }

    /// A pending attempt is neither a success nor a failure.
    func count(_ result: Result) {
        if result != .pending { failing.record(result == .failed ? 1 : 0) }
        Counter(
            label: "certprov_renewals_total", dimensions: dimensions + [("result", result.rawValue)], factory: factory
        ).increment()
    }

    /// Counts an identity that has expired, and was replaced because its key proves where it lives.
    func countRecovery() {
        Counter(label: "certprov_recoveries_total", dimensions: dimensions, factory: factory).increment()
    }

    func countFailure(_ code: ProviderError.Code) {
        Counter(
            label: "certprov_renewal_failures_total", dimensions: dimensions + [("code", code.rawValue)],
            factory: factory
        ).increment()
    }
}

import CertificateProviding
import Testing

@testable import Renewal

@Suite struct RenewalBackoffTests {
    /// A retry can't help until the user has repaired the cause.
    @Test(
        arguments: [
            .configurationMissing, .configurationInvalid, .noCertificateProvider, .serverNotTrusted, .wrongPassword,
            .pinLocked,
        ] as [CertificateProviderError.Code])
    func aFailureThatNeedsTheUserIsRetriedRarelyFromTheStart(code: CertificateProviderError.Code) {
        #expect(delay(code, failures: 1) == delay(code, failures: 20))
    }

    @Test(
        "Unavailable, timed-out and pending renewals are first retried within 90 seconds",
        arguments: [.unavailable, .timedOut, .pending] as [CertificateProviderError.Code])
    func otherFailuresAreRetriedSoon(code: CertificateProviderError.Code) {
        #expect(delay(code, failures: 1) == .seconds(90))
        #expect(delay(code, failures: 20) == .seconds(3630))
    }

    private func delay(_ code: CertificateProviderError.Code, failures: Int) -> Duration {
        RenewalBackoff().delay(
            after: CertificateProviderError(code, "It failed."), failures: failures, window: .days(1),
            longestDelay: nil, draw: 1)
    }
}

import CertificateProviding
import Testing

@testable import Renewal

@Suite struct RenewalBackoffTests {
    /// A retry can't help until the user has repaired the cause.
    @Test(
        arguments: [
            .configurationMissing, .configurationInvalid, .noCertificateProvider, .serverNotTrusted, .wrongPassword,
            .pinLocked,
        ] as [ProviderError.Code])
    func aFailureThatNeedsTheUserIsRetriedRarelyFromTheStart(code: ProviderError.Code) {
        #expect(delay(code, failures: 1) == delay(code, failures: 20))
    }

    @Test(
        "Unavailable, timed-out and pending renewals are first retried within 90 seconds",
        arguments: [.unavailable, .timedOut, .pending] as [ProviderError.Code])
    func otherFailuresAreRetriedSoon(code: ProviderError.Code) {
        #expect(delay(code, failures: 1) == .seconds(90))
        #expect(delay(code, failures: 20) == .seconds(3630))
    }

    private func delay(_ code: ProviderError.Code, failures: Int) -> Duration {
        RenewalBackoff().delay(
            after: ProviderError(code, "It failed."), failures: failures, window: .days(1),
            longestDelay: nil, draw: 1)
    }
}

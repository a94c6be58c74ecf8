import CertificateProviding
import FoundationEssentials
import Testing

@testable import Renewal

/// A service whose issuer says when to renew, on a clock that a test turns. Certificates are for a day, and three days of time.
@Suite struct AdviceTests {
    private let clock: TurnedClock
    private let provider: IssuingProvider
    private let first: Identity

    init() throws {
        clock = TurnedClock(until: .days(3))
        provider = try IssuingProvider(clock, lifetime: .days(1))
        first = try provider.issue()
        provider.store(first)
    }

    private func run() async {
        let service = RenewingIdentity(first, of: provider, clock.environment)
        await service.run(on: clock)
    }

    /// A window of a minute, so many hours after the start of the certificate.
    private static func window(after hours: Double, of identity: Identity) -> RenewalAdvice {
        let start = identity.certificate.notValidBefore.addingTimeInterval(hours * 3600)
        return RenewalAdvice(window: start...start.addingTimeInterval(60))
    }

    @Test(
        "A renewal that the issuer brings forward while the service runs comes then, also within the pause after a success"
    )
    func aRenewalIsBroughtForward() async {
        let (clock, first) = (clock, first)
        provider.advise { identity in
            // Two hours later it says so, of the second certificate.
            clock.uptime > .hours(18) && identity.certificate != first.certificate
                ? Self.window(after: 4, of: identity) : nil
        }
        await run()
        let intervals = provider.renewals.intervals
        #expect(intervals.allSatisfy { (.hours(2)...(.hours(4.1))).contains($0) }, "\(provider.renewals)")
        #expect(intervals.count > 8)
    }

    @Test("An issuer that wants each certificate to be renewed at once gets one request an hour")
    func renewalsAtOnceAreBounded() async {
        provider.advise { Self.window(after: -100, of: $0) }
        await run()
        #expect((30...72).contains(provider.renewals.count), "\(provider.renewals.count)")
        #expect(provider.renewals.intervals.allSatisfy { $0 >= .hours(0.99) })
    }

    @Test("A renewal that the issuer postpones comes at the margin before expiry at the latest")
    func aRenewalIsPostponed() async {
        provider.advise { Self.window(after: 1000, of: $0) }
        await run()
        let intervals = ([.zero] + provider.renewals).intervals
        #expect(
            intervals.count == 3 && intervals.allSatisfy { (.hours(22.7)...(.hours(22.9))).contains($0) },
            "\(intervals)")
    }
}

import CertificateProviding
import FoundationEssentials
import TestSupport
import Testing

@Suite struct RenewalScheduleTests {
    private static let day = 86_400.0
    private static let start = Date(timeIntervalSince1970: 1_800_000_000)

    /// When a certificate for 90 days is due, in days; with a draw of 0, which is the latest.
    private func due(
        _ point: RenewalPoint = .standard, margin: Duration? = nil, draw: Double = 0, days: Double = 90
    ) -> Double {
        let schedule = RenewalSchedule(
            from: Self.start, to: Self.start.addingTimeInterval(days * Self.day),
            policy: RenewalPolicy(point: point, margin: margin), draw: draw)
        return schedule.due.timeIntervalSince(Self.start) / Self.day
    }

    @Test(
        "A renewal point is read as a share of the lifetime or a time before expiry",
        arguments: [
            ("0.66", RenewalPoint.share(0.66)), (".5", .share(0.5)), ("66%", .share(0.66)), ("12.5%", .share(0.125)),
            ("30d", .beforeExpiry(.seconds(2_592_000))), ("2w", .beforeExpiry(.seconds(1_209_600))),
            ("12h", .beforeExpiry(.seconds(43_200))), ("45m", .beforeExpiry(.seconds(2700))),
            ("90s", .beforeExpiry(.seconds(90))),
        ])
    func readsWhatPeopleWrite(text: String, point: RenewalPoint) { #expect(RenewalPoint(text) == point) }

    @Test(
        "A malformed renewal point is refused",
        arguments: [
            "", "0", "1", "1.0", "100%", "0%", "-1d", "+3d", "0d", "d", "%", "1.5d", "2/3", "nan", "inf", "0x1p-1",
            "1e-1",
            "66 %", "30 d", "1000000d", "30D", "٣d", "0.999", String(repeating: "0", count: 10_000) + "1d",
        ])
    func refusesAnythingElse(text: String) { #expect(RenewalPoint(text) == nil) }

    @Test func aPointIsAShareOrATimeBeforeExpiry() {
        #expect(abs(due() - 60) < 0.001)
        #expect(abs(due(.share(0.5)) - 45) < 0.001)
        #expect(abs(due(.beforeExpiry(.seconds(10 * 86_400))) - 80) < 0.001)
    }

    @Test func theMarginIsKept() {
        #expect(abs(due(.share(0.99)) - 85.5) < 0.001, "a twentieth of the lifetime")
        #expect(abs(due(.share(0.99), margin: .seconds(20 * 86_400)) - 70) < 0.001)
        #expect(abs(due(.beforeExpiry(.seconds(60)), margin: .seconds(86_400)) - 89) < 0.001)
    }

    @Test func aTimeThatIsTooLongForTheLifetimeIsNotDueAtOnce() {
        #expect(abs(due(.beforeExpiry(.seconds(30 * 86_400)), days: 9) - 3) < 0.001)
        #expect(abs(due(margin: .seconds(30 * 86_400), days: 9) - 3) < 0.001)
    }

    @Test(arguments: [RenewalPoint.standard, .share(0.9), .beforeExpiry(.seconds(86_400))])
    func jitterIsATenthOfTheWayAndNeverLater(point: RenewalPoint) {
        #expect(due(point, draw: 0.5) < due(point))
        #expect(abs(due(point, draw: 1) / due(point) - 0.9) < 0.001)
    }

    @Test func aCertificateDrawsForItselfAndAlwaysTheSame() throws {
        let authority = try TestAuthority()
        let lifetime = 3000 * Self.day
        let schedules = try (0..<40).map { _ in
            let identity = try authority.issue(
                "host", notBefore: Self.start, notAfter: Self.start.addingTimeInterval(lifetime))
            let again = try Identity(
                certificateChain: identity.certificateChain.map { certificate in
                    try X509Certificate(derRepresentation: certificate.derRepresentation)
                }, key: identity.key, provenance: identity.provenance)
            #expect(RenewalSchedule(for: identity) == RenewalSchedule(for: again))
            return RenewalSchedule(for: identity)
        }
        let days = schedules.map { $0.due.timeIntervalSince(Self.start) / Self.day }
        #expect(days.allSatisfy { (1800...2000).contains($0) })
        // All in one half of the window: one in 2⁴⁰.
        #expect(days.contains { $0 < 1900 } && days.contains { $0 > 1900 })
        #expect(schedules[0].isDue(at: schedules[0].due) && !schedules[0].isDue(at: schedules[0].due - 1))
    }

    @Test("A chain that ends before its leaf is renewed by the earlier end")
    func theEarliestEndOfTheChainCounts() throws {
        let end = Self.start.addingTimeInterval(90 * Self.day)
        let authority = try TestAuthority(intermediateUntil: end)
        let identity = try authority.issue(
            "host", notBefore: Self.start, notAfter: Self.start.addingTimeInterval(900 * Self.day))
        let schedule = RenewalSchedule(for: identity)
        #expect(schedule.expiry == end)
        #expect((54...60).contains(schedule.due.timeIntervalSince(Self.start) / Self.day))
    }

    @Test("The end of a certificate that was over when the leaf was issued does not count")
    func aSuperfluousEndDoesNotCount() throws {
        let authority = try TestAuthority()
        let identity = try authority.issue("host")
        let chain = try authority.crossCertified(identity, until: identity.certificate.notValidBefore - 1)
        #expect(chain.expiry < identity.certificate.notValidBefore)
        #expect(RenewalSchedule(for: chain) == RenewalSchedule(for: identity))
    }

    @Test(
        "The issuer's advice brings a renewal forward, and postpones it as far as the renewal point or the margin permits",
        arguments: [
            // 100 days; the point is at 66 (or 50), the margin at 95.
            (nil, 40.0, 40.0, "issuer"), (nil, 80.0, 80.0, "issuer"), (nil, 98.0, 95.0, "margin"),
            (nil, 5000.0, 95.0, "margin"), (nil, -400.0, 1.0 / 24, "issuer"), ("50%", 40.0, 40.0, "issuer"),
            ("50%", 80.0, 50.0, "renew-at"), ("99%", 5000.0, 95.0, "renew-at"),
        ] as [(String?, Double, Double, String)])
    func theIssuersAdviceMovesTheRenewal(point: String?, advised: Double, due: Double, rule: String) throws {
        let instant = Self.start.addingTimeInterval(advised * Self.day)
        let policy = try RenewalPolicy(point: point.map { try #require(RenewalPoint($0)) } ?? .standard)
        let schedule = RenewalSchedule(
            from: Self.start, to: Self.start.addingTimeInterval(100 * Self.day), policy: policy,
            advice: RenewalAdvice(window: instant...instant), draw: 0)
        #expect(abs(schedule.due.timeIntervalSince(Self.start) / Self.day - due) < 0.001)
        #expect(schedule.rule.rawValue == rule)
    }

    @Test("Without advice the rule is the renewal point, or the margin if it is earlier")
    func theRuleWithoutAdvice() throws {
        let end = Self.start.addingTimeInterval(100 * Self.day)
        #expect(RenewalSchedule(from: Self.start, to: end, policy: .init(), draw: 0).rule == .point)
        #expect(RenewalSchedule(from: Self.start, to: end, policy: .init(point: .share(0.99)), draw: 0).rule == .margin)
    }

    @Test("A negative, empty or very long validity period does not break the schedule")
    func oddValiditiesAreNoTrap() {
        #expect(due(days: -5) == 0)
        #expect(due(days: 0) == 0)
        #expect(due(days: 2_900_000) > 1_000_000)
    }

    @Test("An error in 'renew-at' names file and line, not the value")
    func theParameterNamesItsPlaceWhenItIsWrong() throws {
        let id = ProviderID("mdm")
        var parameters = ProviderParameters(["renew-at": .init("75%", origin: "file:3")])
        #expect(try parameters.renewalPoint(provider: id) == .share(0.75))
        #expect(try ProviderParameters().renewalPoint(provider: id) == .standard)
        parameters["renew-at"] = .init("sEcReT", origin: "file:3")
        do throws(ProviderError) {
            _ = try parameters.renewalPoint(provider: id)
            Issue.record("nothing was thrown")
        } catch {
            #expect(error.code == .configurationInvalid && error.message.hasPrefix("file:3: "))
            #expect(!error.message.contains("sEcReT"))
        }
    }
}

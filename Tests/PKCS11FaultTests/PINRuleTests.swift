import Foundation
import Testing

@testable import PKCS11TokenProvider

/// The table of Documentation/Decisions/011-unanswered-logins.md, row by row.
@Suite struct PINRuleTests {
    private static let now = Date(timeIntervalSince1970: 2_000_000_000)

    struct Row: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let pin: PINRule.PIN
        let count: PINRule.Count
        let verdict: PINRule.Verdict
    }

    /// - Parameter seconds: How long ago the last one was.
    private static func unanswered(
        _ logins: UInt16, _ seconds: TimeInterval = 0, low: Bool = false
    ) -> PINRule.Unanswered { .init(count: logins, last: now - seconds, wasCountLow: low) }

    private static func row(
        _ name: String, rejected: Bool = false, accepted: Bool = false, _ unanswered: PINRule.Unanswered? = nil,
        shown: Bool = false, low: Bool = false, final: Bool = false, locked: Bool = false, then verdict: PINRule.Verdict
    ) -> Row {
        Row(
            testDescription: name,
            pin: .init(isRejected: rejected, isAccepted: accepted, unanswered: unanswered),
            count: .init(isShown: shown, isLow: low, isFinal: final, isLocked: locked), verdict: verdict)
    }

    static let rows = [
        row("locked: not sent", accepted: true, locked: true, then: .locked),
        row("one try left: not sent", accepted: true, shown: true, low: true, final: true, then: .finalTry),
        row("rejected: never again", rejected: true, then: .rejected),
        row(
            "rejected, and a login without an answer: never again", rejected: true, unanswered(1, 1e9), then: .rejected),
        row("nothing known: sent", then: .send),
        row("nothing known, count shown: sent", shown: true, low: true, then: .send),
        row("accepted: sent", accepted: true, then: .send),
        row("accepted, count low: sent", accepted: true, shown: true, low: true, then: .send),

        row("accepted, no answer: after a second", accepted: true, unanswered(1), then: .wait(until: now + 1)),
        row("accepted, no answer, a second later: sent", accepted: true, unanswered(1, 1), then: .send),
        row(
            "accepted, five without an answer: after 16 seconds", accepted: true, unanswered(5),
            then: .wait(until: now + 16)),
        row(
            "accepted, counted since: may be another PIN, after a second", accepted: true, unanswered(1), shown: true,
            low: true, then: .wait(until: now + 1)),
        row(
            "accepted, count low before and after: after a second", accepted: true, unanswered(1, low: true), low: true,
            then: .wait(until: now + 1)),
        row("accepted, many: after an hour", accepted: true, unanswered(13), then: .wait(until: now + 3600)),
        row("accepted, very many: after an hour", accepted: true, unanswered(.max), then: .wait(until: now + 3600)),
        row("accepted, very many, an hour later: sent", accepted: true, unanswered(.max, 3600), then: .send),

        row("no answer, counted since: that was it", unanswered(1), shown: true, low: true, then: .countedAsWrong),
        row("no answer, counted since, days ago: that was it", unanswered(4, 1e6), low: true, then: .countedAsWrong),
        row(
            "no answer, count shown and clear: after a second", unanswered(1), shown: true, then: .wait(until: now + 1)),
        row("no answer, count shown and clear, later: sent", unanswered(1, 1), shown: true, then: .send),
        row("many, count shown and clear: after an hour", unanswered(40), shown: true, then: .wait(until: now + 3600)),

        row("no answer, count concealed: once more at once", unanswered(1), then: .send),
        row("two, count concealed: after a day", unanswered(2), then: .wait(until: now + 86400)),
        row("two, count concealed, a day later: sent", unanswered(2, 86400), then: .send),
        row("many, count concealed: after a day", unanswered(.max), then: .wait(until: now + 86400)),
        row(
            "no answer, count low before and after: once more", unanswered(1, low: true), shown: true, low: true,
            then: .send),
        row(
            "two, count low before and after: after a day", unanswered(2, low: true), shown: true, low: true,
            then: .wait(until: now + 86400)),
    ]

    @Test(arguments: rows) func aRowOfTheTable(row: Row) {
        #expect(PINRule.verdict(on: row.pin, row.count, now: Self.now) == row.verdict)
    }
}

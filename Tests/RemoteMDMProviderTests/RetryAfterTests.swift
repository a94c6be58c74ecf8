import Foundation
import NIOHTTP1
import Testing

@testable import ProviderTransport

/// When a server says to come back (RFC 9110, section 10.2.3).
@Suite struct RetryAfterTests {
    /// 6 November 1994, 08:49:37.
    private static let date = Date(timeIntervalSince1970: 784_111_777)

    private func delay(_ text: String, at now: Date = date) -> Duration? {
        HTTPResponse(status: 503, headers: ["Retry-After": text], body: []).retryAfter(now: now)
    }

    @Test(arguments: [
        ("0", 0), ("120", 120), (" 7 ", 7), ("2592001", 2_592_000), ("99999999999999999999999", 2_592_000),
        ("9223372036854775808", 2_592_000), ("-5", nil), ("+5", nil), ("1.5", nil), ("soon", nil), ("", nil),
    ])
    func secondsCountUpToAMonth(text: String, seconds: Int?) {
        #expect(delay(text) == seconds.map { .seconds($0) })
    }

    @Test(arguments: [
        "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
        "Sun Nov 06 08:49:37 1994",
    ])
    func allThreeFormsOfADateAreRead(text: String) {
        #expect(delay(text, at: Self.date - 90) == .seconds(90))
        #expect(delay(text, at: Self.date + 90) == .zero)
    }

    @Test(
        "A malformed date in Retry-After is ignored",
        arguments: [
            "Sun, 06 Nov 1994 08:49:37", "Sunday, 06-Nov-1994 08:49:37 GMT", "Sunday, 06-Nov--4 08:49:37 GMT",
            "Sun Nov 6 08:49 1994", "Sun Foo 6 08:49:37 1994", "Sun Nov 32 08:49:37 1994",
            "Sun, 06 Nov 1994 24:49:37 GMT",
        ])
    func nothingElseIsADate(text: String) { #expect(delay(text) == nil) }

    /// A year that seems to be more than 50 years ahead is the last century's.
    @Test func aYearOfTwoDigitsIsNear() throws {
        let now = Date(timeIntervalSince1970: 1_790_000_000)  // 2026
        #expect(delay("Monday, 21-Sep-26 14:13:25 GMT", at: now) == .seconds(5))
        #expect(delay("Monday, 21-Sep-76 14:13:25 GMT", at: now) == .seconds(2_592_000))
        #expect(delay("Tuesday, 21-Sep-77 14:13:25 GMT", at: now) == .zero)
    }
}

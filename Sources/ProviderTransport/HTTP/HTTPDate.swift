import FoundationEssentials

/// The dates of HTTP (RFC 9110, section 5.6.7): senders use the first form only, recipients accept all three.
enum HTTPDate {
    /// Reads a date such as `Sun, 06 Nov 1994 08:49:37 GMT`, `Sunday, 06-Nov-94 08:49:37 GMT` or
    /// `Sun Nov  6 08:49:37 1994`.
    ///
    /// - Parameter now: The reference for two-digit years: such a year is the latest one that is at most 50 years
    ///   after `now`.
    static func parse(_ text: String, now: Date) -> Date? {
        let words = text.split(separator: " ")
        switch words.count {
        case 6 where words[5] == "GMT": return date(words[1], words[2], year: Int(words[3]), words[4])
        case 5: return date(words[2], words[1], year: Int(words[4]), words[3])
        case 4 where words[3] == "GMT":
            let parts = words[1].split(separator: "-")
            guard parts.count == 3, parts[2].utf8.count == 2, let number = Int(parts[2]), number >= 0 else {
                return nil
            }
            let latest = calendar.component(.year, from: now) + 50
            return date(parts[0], parts[1], year: latest - (latest - number) % 100, words[2])
        default: return nil
        }
    }

    private static func date(_ day: Substring, _ month: Substring, year: Int?, _ clock: Substring) -> Date? {
        guard let day = Int(day), let year, let month = months.firstIndex(of: String(month)) else { return nil }
        let time = clock.split(separator: ":").map { Int($0) }
        guard time.count == 3, let hour = time[0], let minute = time[1], let second = time[2],
            (1...31).contains(day), (1970...9999).contains(year), (0...23).contains(hour), (0...59).contains(minute),
            (0...60).contains(second)
        else { return nil }
        return calendar.date(
            from: DateComponents(year: year, month: month + 1, day: day, hour: hour, minute: minute, second: second))
    }

    private static var calendar: Calendar {
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = .gmt
        return calendar
    }

    private static let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
}

import ArgumentParser
import CertificateProviding

/// A time on the command line: `90s`, `15m`, `8h` or `2d`, at most a week.
struct SpanOfTime: ExpressibleByArgument, CustomStringConvertible {
    let description: String
    let duration: Duration

    init?(argument: String) { self.init(argument, atMost: 7) }

    /// - Parameter days: The longest one.
    init?(_ text: String, atMost days: Int) {
        let units: [Character: Int] = ["s": 1, "m": 60, "h": 3600, "d": 86400]
        guard let unit = text.last.flatMap({ units[$0] }),
            (1...6).contains(text.utf8.count - 1), text.dropLast().utf8.allSatisfy({ 0x30...0x39 ~= $0 }),
            let count = Int(text.dropLast()), count > 0, count * unit <= days * 86400
        else { return nil }
        (description, duration) = (text, .seconds(count * unit))
    }

    /// Reads a time that is about the lifetime of certificates.
    static func ofCertificates(_ text: String) throws -> Self {
        guard let span = Self(text, atMost: 36500) else {
            throw ValidationError("'\(text.withVisibleControls)' is not a time; write 14d, 36h or 10m.")
        }
        return span
    }
}

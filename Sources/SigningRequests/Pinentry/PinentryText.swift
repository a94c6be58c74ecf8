import CertificateProviding

/// Text for a command of pinentry.
package enum PinentryText {
    /// The maximum of escaped bytes: a line of more than some 1000 ends the program.
    package static let maximum = 900

    /// The rows that pinentry-curses has for a text on a terminal with 24, beside its own: with more, it does not ask.
    package static let maximumRows = 16

    /// How many bytes a text has when it is escaped.
    package static func count(_ text: String) -> Int { text.utf8.reduce(0) { $0 + (isEscaped($1) ? 3 : 1) } }

    /// Returns the text as one line: `%` and control characters are escaped, a line end too. Of a text that is too long, the end
    /// is missing, and `…` in its place.
    package static func escaped(_ text: String, atMost maximum: Int = maximum) -> String {
        ByteText.percentEncoded(cut(text, toBytes: maximum).utf8) { !isEscaped($0) }
    }

    /// Returns a text that has at most that many bytes when it is escaped.
    package static func cut(_ text: String, toBytes maximum: Int) -> String {
        guard count(text) > maximum else { return text }
        var left = maximum - "…".utf8.count
        var result = ""
        // Of scalars: a character may have any number of them.
        for scalar in text.unicodeScalars {
            left -= count(String(scalar))
            guard left >= 0 else { break }
            result.unicodeScalars.append(scalar)
        }
        return result + "…"
    }

    private static func isEscaped(_ byte: UInt8) -> Bool { byte < 0x20 || byte == 0x7f || byte == UInt8(ascii: "%") }
}

/// Text for people: data from outside in messages, prompts and listings.
public enum DisplayText {
    /// Returns the text with every control character, every mark that cannot be seen, such as one that changes the direction of
    /// text or has no width, and the separators of lines and paragraphs as `\xx`: the hexadecimal digits of its UTF-8. A name in a
    /// certificate, say, then cannot send commands to a terminal.
    public static func visible(_ text: String) -> String { text.withVisibleControls }

    /// Returns the text quoted as one word of a POSIX shell, for a command that a message advises.
    public static func shellQuoted(_ text: String) -> String { text.shellQuoted }

    /// Returns two lower-case hexadecimal digits for each byte, without separators.
    public static func hexadecimal(_ bytes: some Sequence<UInt8>) -> String { Array(bytes).hexEncoded }
}

extension String {
    /// As ``DisplayText/visible(_:)``.
    package var withVisibleControls: String {
        guard unicodeScalars.contains(where: \.isControl) else { return self }
        return unicodeScalars.map { $0.isControl ? "\\" + String($0).utf8.hexEncoded : String($0) }.joined()
    }

    /// A JSON text with the same meaning, in which the characters that ``DisplayText/visible(_:)`` replaces are escapes: encoders leave
    /// those that are not ASCII.
    package var withEscapedControls: String {
        guard unicodeScalars.contains(where: { $0.isControl && $0 != "\n" }) else { return self }
        return unicodeScalars.map { scalar in
            guard scalar.isControl, scalar != "\n" else { return String(scalar) }
            // Two for a character beyond U+FFFF.
            return String(scalar).utf16.map { unit in
                let digits = String(unit, radix: 16)
                return "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            }.joined()
        }.joined()
    }
}

extension Unicode.Scalar {
    /// Whether this is a C0 or C1 control, a format character (category Cf: directions of text, no width, tags), or a separator of
    /// lines or paragraphs.
    var isControl: Bool {
        if value < 0xa0 { return value < 0x20 || value >= 0x7f }
        switch properties.generalCategory {
        case .format, .lineSeparator, .paragraphSeparator: return true
        default: return false
        }
    }
}

extension Collection<UInt8> {
    /// As ``DisplayText/hexadecimal(_:)``.
    package var hexEncoded: String {
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }
}

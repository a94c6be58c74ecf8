/// Text for people: data from outside in messages, prompts and listings.
public enum DisplayText {
    /// Returns the text with every control character, and every mark that changes the direction of text, as `\xx`:
    /// the hexadecimal digits of its UTF-8. A name in a certificate, say, then cannot send commands to a terminal.
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
            let digits = String(scalar.value, radix: 16)
            return "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        }.joined()
    }
}

extension Unicode.Scalar {
    /// Whether this is a C0 or C1 control, or a mark that changes the direction of text.
    var isControl: Bool {
        value < 0x20 || (0x7f...0x9f).contains(value) || (0x202a...0x202e).contains(value)
            || (0x2066...0x2069).contains(value)
    }
}

extension Collection<UInt8> {
    /// As ``DisplayText/hexadecimal(_:)``.
    package var hexEncoded: String {
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }
}

/// Text for people: data from outside in messages, prompts and listings.
public enum DisplayText {
    /// Returns the text with every control character, every mark that cannot be seen, such as one that changes the direction of
    /// text or has no width, fillers, and the separators of lines and paragraphs as `\xx`: the hexadecimal digits of its UTF-8. A name
    /// in a certificate, say, then cannot send commands to a terminal.
    public static func visible(_ text: String) -> String { text.withVisibleControls }

    /// Returns a text that another party has chosen, such as the name of a file, for a question to a person: nothing in it moves,
    /// covers or imitates what stands around it.
    ///
    /// As ``visible(_:)``. Escaped are also spaces other than U+0020, a space behind a space, and combining characters: an accent, unless
    /// its letter exists with it as one character, which then stands for both; other marks without a letter, and from the third on.
    ///
    /// - Parameter limit: The most characters (code points) of the result. The last one of a longer text is an ellipsis.
    public static func claim(_ text: String, limit: Int = 128) -> String { text.asClaim(limit: limit) }

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

extension String {
    /// As ``DisplayText/claim(_:limit:)``.
    package func asClaim(limit: Int = 128) -> String {
        // The rest is not looked at, whatever the size.
        let start = String(UnicodeScalarView(unicodeScalars.prefix(limit + 1)))
        var result = UnicodeScalarView()
        // The label before it ends in a space.
        var (isBehindSpace, hasLetter, marks) = (true, false, 0)
        for character in start {
            for scalar in Self.composed[character].map({ [$0] }) ?? Array(character.unicodeScalars) {
                marks = scalar.isMark ? marks + 1 : 0
                let isShown =
                    if scalar == " " { !isBehindSpace } else if marks > 0 {
                        hasLetter && marks <= 2 && !scalar.isAccent && !scalar.isControl
                    } else { !scalar.isControl && !scalar.isSpace }
                if isShown {
                    result.append(scalar)
                } else {
                    result.append(contentsOf: ("\\" + String(scalar).utf8.hexEncoded).unicodeScalars)
                }
                isBehindSpace = scalar == " "
                if marks == 0 { hasLetter = isShown && !isBehindSpace }
            }
        }
        guard result.count > limit else { return String(result) }
        return String(UnicodeScalarView(result.prefix(limit - 1))) + "…"
    }

    /// Letters with accents, by themselves as they are equal to other spellings: file systems of macOS have letter and accent apart.
    private static let composed: [Character: Unicode.Scalar] = Dictionary(
        ([0xc0...0x24f, 0x370...0x4ff, 0x1e00...0x1fff] as [ClosedRange<UInt32>]).joined()
            .compactMap { Unicode.Scalar($0) }.filter(\.properties.isAlphabetic).map { (Character($0), $0) }
    ) { first, _ in first }
}

extension Unicode.Scalar {
    /// Whether this is a C0 or C1 control, a format character (category Cf: directions of text, no width, tags), another character that
    /// is not drawn, such as a filler or a selector of variants, or a separator of lines or paragraphs.
    var isControl: Bool {
        if value < 0xa0 { return value < 0x20 || value >= 0x7f }
        switch properties.generalCategory {
        case .format, .lineSeparator, .paragraphSeparator: return true
        // The blank of Braille is a symbol without a dot.
        default: return properties.isDefaultIgnorableCodePoint || value == 0x2800
        }
    }

    /// Whether this is a space other than U+0020.
    fileprivate var isSpace: Bool { self != " " && properties.generalCategory == .spaceSeparator }

    /// Whether this is drawn over, under or through the character before it.
    fileprivate var isMark: Bool { [.nonspacingMark, .enclosingMark].contains(properties.generalCategory) }

    /// Whether this is a mark for any letter: of a block of Combining Diacritical Marks, or Combining Half Marks.
    fileprivate var isAccent: Bool {
        switch value {
        case 0x300...0x36f, 0x1ab0...0x1aff, 0x1dc0...0x1dff, 0x20d0...0x20ff, 0xfe20...0xfe2f: true
        default: false
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

package import CertificateProviding

/// Reads Java properties like `java.util.Properties.load`, and refuses ambiguous input.
///
/// Same as Java: comments, the three separators, continuation lines, escapes and their order (continuations are joined
/// before escapes are read). Stricter: the text must be UTF-8. Input that Java drops or accepts silently is an error: a
/// backslash before a letter without meaning, an unpaired surrogate, a duplicate key, a line without a key.
package struct PropertiesParser {
    private let text: ConfigurationText
    private var index = 0
    private var line = 1

    private init(_ text: ConfigurationText) { self.text = text }

    /// Parses a property file.
    ///
    /// - Parameter file: The name of the file in errors.
    /// - Throws: `configurationInvalid`, with file and line, and the key if there is one. Never shows a value.
    package static func settings(in bytes: [UInt8], file: String) throws(ProviderError) -> Settings {
        guard !ConfigurationFile.beginsAsPropertyList(bytes) else {
            // Read as properties, its values would be taken for keys, and shown.
            throw SourcePosition(file: file, line: 1).invalid("This is a property list; name it .plist.")
        }
        var parser = PropertiesParser(try ConfigurationText(bytes, file: file))
        var settings = Settings()
        while let setting = try parser.next() { try settings.append(setting) }
        return settings
    }

    private var position: SourcePosition { SourcePosition(file: text.file, line: line) }

    /// Returns the next key and value; `nil` at the end.
    private mutating func next() throws(ProviderError) -> Setting? {
        guard skipToLogicalLine() else { return nil }
        let start = position
        let key = try element(of: nil) { $0 == UInt8(ascii: "=") || $0 == UInt8(ascii: ":") || $0.isBlank }
        guard !key.isEmpty else { throw start.invalid("The key before the separator is missing; write KEY = VALUE.") }
        let isName = skipSeparator() && key.first?.isLetter == true && key.allSatisfy(\.isOfNames)
        let value = try element(of: isName ? key : nil) { _ in false }
        // A line of Base64 can end in one or two signs of equality.
        let isKeyCertain = isName && !["", "="].contains(value)
        return Setting(key: key, value: value, position: start, isKeyCertain: isKeyCertain)
    }

    /// Moves to the first character of the next line that is neither blank nor a comment.
    private mutating func skipToLogicalLine() -> Bool {
        while index < text.bytes.count {
            let byte = text.bytes[index]
            if byte.isLineEnd {
                skipLineEnd()
            } else if byte.isBlank {
                index += 1
            } else if byte == UInt8(ascii: "#") || byte == UInt8(ascii: "!") {
                while index < text.bytes.count, !text.bytes[index].isLineEnd { index += 1 }
            } else {
                // A continuation here continues nothing: what comes after it may still be a comment.
                let start = index
                _ = peek()
                if index == start { return true }
            }
        }
        return false
    }

    private mutating func skipLineEnd() {
        let isPair = text.bytes[index] == .carriageReturn && text.bytes[(index + 1)...].first == .lineFeed
        index += isPair ? 2 : 1
        line += 1
    }

    /// Returns the current byte; `nil` at the end of the logical line. Skips continuations: a backslash, the line end
    /// after it and the blanks at the beginning of the next line.
    private mutating func peek() -> UInt8? {
        while index < text.bytes.count, text.bytes[index] == .backslash {
            guard index + 1 < text.bytes.count else {
                index += 1  // As Java: a continuation that nothing follows.
                return nil
            }
            guard text.bytes[index + 1].isLineEnd else { break }
            index += 1
            skipLineEnd()
            while index < text.bytes.count, text.bytes[index].isBlank { index += 1 }
        }
        guard index < text.bytes.count, !text.bytes[index].isLineEnd else { return nil }
        return text.bytes[index]
    }

    /// Skips blanks, at most one `=` or `:`, and blanks.
    /// - Returns: Whether there was more than blanks.
    private mutating func skipSeparator() -> Bool {
        var isFound = false
        while let byte = peek() {
            if !isFound, byte == UInt8(ascii: "=") || byte == UInt8(ascii: ":") {
                isFound = true
            } else if !byte.isBlank {
                return isFound
            }
            index += 1
        }
        return isFound
    }

    /// Reads a key or value up to an unescaped byte that ends it, or to the end of the logical line.
    /// - Parameter key: The key that the value belongs to, if errors may show it.
    private mutating func element(
        of key: String?, endingAt isEnd: (UInt8) -> Bool
    ) throws(ProviderError) -> String {
        var result: [UInt8] = []
        while let byte = peek(), !isEnd(byte) {
            if byte == .backslash {
                try appendEscape(to: &result, key: key)
            } else {
                result.append(byte)
                index += 1
            }
        }
        return String(decoding: result, as: UTF8.self)
    }
}

extension PropertiesParser {
    private mutating func appendEscape(
        to result: inout [UInt8], key: String?
    ) throws(ProviderError) {
        index += 1
        // There is a byte: peek() has taken a backslash at the end of the line or text for a continuation.
        let byte = text.bytes[index]
        switch byte {
        case UInt8(ascii: "t"): result.append(.tab)
        case UInt8(ascii: "n"): result.append(.lineFeed)
        case UInt8(ascii: "f"): result.append(.formFeed)
        case UInt8(ascii: "r"): result.append(.carriageReturn)
        case UInt8(ascii: "u"):
            index += 1
            result.append(contentsOf: String(try scalar(key: key)).utf8)
            return
        case _ where byte.isPunctuation || byte.isBlank: result.append(byte)
        default:
            throw badEscape(
                "only t, n, f, r, u, a blank or punctuation can follow a backslash; write a backslash as two",
                key: key)
        }
        index += 1
    }

    /// Reads the four digits after `\u` and, after the first half of a surrogate pair, the second half.
    private mutating func scalar(key: String?) throws(ProviderError) -> Unicode.Scalar {
        let unit = try codeUnit(key: key)
        if let scalar = Unicode.Scalar(unit) {
            guard scalar != "\0" else { throw badEscape("a NUL character is not permitted", key: key) }
            return scalar
        }
        guard UTF16.isLeadSurrogate(unit), peek() == .backslash, text.bytes[index + 1] == UInt8(ascii: "u") else {
            throw badEscape("a surrogate is not part of a pair", key: key)
        }
        index += 2
        let second = try codeUnit(key: key)
        guard UTF16.isTrailSurrogate(second) else {
            throw badEscape("a surrogate is not part of a pair", key: key)
        }
        return UTF16.decode(UTF16.EncodedScalar([unit, second]))
    }

    private mutating func codeUnit(key: String?) throws(ProviderError) -> UInt16 {
        var unit: UInt16 = 0
        for _ in 0..<4 {
            guard let digit = peek()?.hexadecimalValue else {
                throw badEscape("four hexadecimal digits must follow \\u", key: key)
            }
            unit = unit << 4 | UInt16(digit)
            index += 1
        }
        return unit
    }

    private func badEscape(_ reason: String, key: String?) -> ProviderError {
        let place = key.map { "the value of '\($0.forDisplay)'" } ?? "this line"
        return position.invalid("Bad escape in \(place): \(reason).")
    }
}

extension Character {
    /// Whether the character occurs in names of settings.
    fileprivate var isOfNames: Bool { isLetter || isNumber || self == "." || self == "-" || self == "_" }
}

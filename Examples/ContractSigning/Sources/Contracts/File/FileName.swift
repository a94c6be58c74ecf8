/// Names of files that come from outside.
enum FileName {
    /// The most that a name has, in bytes: that of Linux.
    private static let maximumSize = 255
    /// The longest extension that is kept when a name is cut.
    private static let maximumExtension = 16

    /// Returns the last component of a name, for people: without control characters and marks that cannot be seen, and at most 255
    /// bytes long. No path here is ever made of it.
    static func visible(_ name: String, default fallback: String) -> String {
        let scalars = name.unicodeScalars
        let last =
            scalars.lastIndex { $0 == "/" || $0 == "\\" }.map { scalars[scalars.index(after: $0)...] } ?? scalars[...]
        // A mark without a character to be on would be seen on what stands before the name.
        let kept = last.filter { !isHidden($0) }.drop { $0.properties.generalCategory == .nonspacingMark }
        let text = trimmed(String(String.UnicodeScalarView(kept)))
        guard !text.isEmpty, text != ".", text != ".." else { return fallback }
        return cut(text)
    }

    private static func isHidden(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator, .unassigned, .privateUse, .surrogate: true
        default: scalar.properties.isDefaultIgnorableCodePoint
        }
    }

    private static func trimmed(_ text: String) -> String {
        var text = text[...]
        while text.first?.isWhitespace == true { text.removeFirst() }
        while text.last?.isWhitespace == true { text.removeLast() }
        return String(text)
    }

    /// Cuts a name before its extension.
    private static func cut(_ text: String) -> String {
        guard text.utf8.count > maximumSize else { return text }
        var suffix = text.lastIndex(of: ".").map { String(text[$0...]) } ?? ""
        if suffix.utf8.count > maximumExtension { suffix = "" }
        suffix = "…" + suffix
        var kept = ""
        var size = suffix.utf8.count
        for scalar in text.unicodeScalars {
            size += String(scalar).utf8.count
            guard size <= maximumSize else { break }
            kept.unicodeScalars.append(scalar)
        }
        return kept + suffix
    }
}

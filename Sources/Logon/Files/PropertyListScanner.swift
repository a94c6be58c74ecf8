import CertificateProviding

/// Finds the keys of an XML property list, with their lines and the types of their values.
///
/// Foundation's decoder reads the values. It does not detect duplicate keys, and recurses as deep as the text demands.
/// So this scanner runs first and accepts only bounded, unambiguous input: UTF-8, one dictionary, no internal DTD
/// subset, no entities other than XML's own five and numeric ones.
struct PropertyListScanner {
    enum Kind { case string, integer, boolean, other }

    struct Entry {
        var key: String
        var kind: Kind
        var position: SourcePosition
    }

    /// The contents of a file.
    struct Contents {
        var entries: [Entry]
        /// The file, with empty strings in place of values of kind `other`: Foundation refuses a whole file for one
        /// value that it does not support, such as a date.
        var text: [UInt8]
    }

    static let maximumDepth = 8
    private static let scalars: Set = ["string", "true", "false", "integer", "real", "data", "date"]
    private static let containers: Set = ["array", "dict"]

    private var markup: PropertyListMarkup
    private var entries: [Entry] = []
    /// The positions of the values of kind `other`.
    private var foreign: [Range<Int>] = []
    /// The line of each path of keys, including those of dictionaries.
    private var lines: [String: Int] = [:]

    private init(_ text: ConfigurationText) { markup = PropertyListMarkup(text) }

    /// Scans a property list.
    ///
    /// - Throws: `configurationInvalid`, with file and line, and the key if there is one. Never shows a value.
    static func contents(of text: ConfigurationText) throws(CertificateProviderError) -> Contents {
        var scanner = PropertyListScanner(text)
        try scanner.markup.skipProlog()
        let root = try scanner.markup.startTag()
        guard root.name == "plist", !root.isEmpty else {
            throw scanner.invalid("A property list must begin with <plist>.")
        }
        let top = try scanner.markup.startTag()
        guard top.name == "dict" else {
            throw scanner.invalid("A property list of settings must contain one dictionary.")
        }
        if !top.isEmpty { try scanner.scanDictionary(path: [], depth: 1) }
        try scanner.markup.skipMiscellaneous()
        guard try scanner.markup.takeEndTag() == "plist" else { throw scanner.invalid("</plist> is missing; add it.") }
        try scanner.markup.skipMiscellaneous()
        guard scanner.markup.isAtEnd else { throw scanner.invalid("There is text after </plist>; remove it.") }
        var cleaned = text.bytes
        for range in scanner.foreign.reversed() { cleaned.replaceSubrange(range, with: Array("<string/>".utf8)) }
        return Contents(entries: scanner.entries, text: cleaned)
    }

    private func invalid(_ problem: String) -> CertificateProviderError { markup.position.invalid(problem) }

    private func invalid(_ problem: String, key: String) -> CertificateProviderError {
        markup.position.invalid("The key '\(key.forDisplay)' \(problem).")
    }
}

// MARK: - Values

extension PropertyListScanner {
    private mutating func scanDictionary(path: [String], depth: Int) throws(CertificateProviderError) {
        try checkDepth(depth)
        while true {
            try markup.skipMiscellaneous()
            if let end = try markup.takeEndTag() {
                guard end == "dict" else { throw invalid("</dict> is missing; add it.") }
                return
            }
            let tag = try markup.startTag()
            let start = markup.position
            guard tag.name == "key" else { throw invalid("In a dictionary, each value must follow a <key>.") }
            let name = tag.isEmpty ? "" : try markup.content(of: "key")
            guard !name.isEmpty else { throw start.invalid("The key is empty; name it, or remove its value.") }
            let key = (path + [name]).joined(separator: ".")
            try register(key, at: start)
            try scanValue(of: key, path: path + [name], at: start, depth: depth)
        }
    }

    private func checkDepth(_ depth: Int) throws(CertificateProviderError) {
        guard depth <= Self.maximumDepth else {
            throw invalid(
                "Values are nested deeper than \(Self.maximumDepth) levels; join their keys with dots instead.")
        }
    }

    private mutating func register(_ key: String, at start: SourcePosition) throws(CertificateProviderError) {
        if let first = lines.updateValue(start.line, forKey: key) {
            throw start.invalid("The key '\(key.forDisplay)' is already set in line \(first); remove one of them.")
        }
        // Bounded here and not only by Settings: the cost of the next step grows with the product of both.
        guard key.utf8.count <= Settings.maximumKeyLength else { throw start.keyTooLong }
        guard lines.count <= Settings.maximumCount else {
            throw start.invalid("The file has more than \(Settings.maximumCount) keys; remove some.")
        }
    }

    private mutating func scanValue(
        of key: String, path: [String], at start: SourcePosition, depth: Int
    ) throws(CertificateProviderError) {
        try markup.skipMiscellaneous()
        let beginning = markup.index
        let tag = try markup.startTag()
        switch tag.name {
        case "dict":
            if !tag.isEmpty { try scanDictionary(path: path, depth: depth + 1) }
        case "string", "true", "false", "integer":
            entries.append(Entry(key: key, kind: try scanScalar(tag, of: key), position: start))
        default:
            try skip(tag, of: key, depth: depth + 1)
            foreign.append(beginning..<markup.index)
            entries.append(Entry(key: key, kind: .other, position: start))
        }
    }

    /// Skips a value of a type that settings do not have, with its content: real files contain other programs' keys
    /// too.
    private mutating func skip(
        _ tag: PropertyListMarkup.Tag, of key: String, depth: Int
    ) throws(CertificateProviderError) {
        // First, since errors about the content show the tag's name: from here on it is one of a property list's.
        guard Self.scalars.contains(tag.name) || Self.containers.contains(tag.name) else {
            throw invalid("has a value of an unknown type", key: key)
        }
        guard !tag.isEmpty else { return }
        guard Self.containers.contains(tag.name) else {
            _ = try markup.content(of: tag.name)
            return
        }
        try checkDepth(depth)
        while true {
            try markup.skipMiscellaneous()
            if let end = try markup.takeEndTag() {
                guard end == tag.name else { throw invalid("</\(tag.name)> is missing.") }
                return
            }
            let inner = try markup.startTag()
            if inner.name == "key", tag.name == "dict" {
                if !inner.isEmpty { _ = try markup.content(of: "key") }
            } else {
                try skip(inner, of: key, depth: depth + 1)
            }
        }
    }

    private mutating func scanScalar(
        _ tag: PropertyListMarkup.Tag, of key: String
    ) throws(CertificateProviderError) -> Kind {
        let start = markup.position
        let content = tag.isEmpty ? "" : try markup.content(of: tag.name)
        switch tag.name {
        case "string": return .string
        case "integer":
            let digits = (content.hasPrefix("-") ? content.dropFirst() : content[...]).utf8
            guard (1...18).contains(digits.count), digits.allSatisfy(\.isDigit) else {
                throw invalid("must be an integer of decimal digits", key: key)
            }
            return .integer
        default:
            guard content.isEmpty else { throw start.invalid("<\(tag.name)/> must be empty.") }
            return .boolean
        }
    }
}

import CertificateProviding

/// Finds the keys of an XML property list, with their lines and the kinds of their values.
///
/// Reading the values is swift-configuration's job. It neither enumerates keys nor notices one given twice, and
/// Foundation's parser beneath it recurses as deep as the text says; so this scanner goes first and lets through only
/// what is bounded and unmistakable: UTF-8, one dictionary, no internal DTD subset, no entities but XML's own five and
/// characters by number.
struct PropertyListScanner {
    enum Kind { case string, integer, boolean, other }

    struct Entry {
        var key: String
        var kind: Kind
        var position: SourcePosition
    }

    static let maximumDepth = 8

    private let text: ConfigurationText
    private var index = 0
    private var line = 1
    private var entries: [Entry] = []
    /// Where each path of keys begins, those of dictionaries as well.
    private var lines: [String: Int] = [:]

    private init(_ text: ConfigurationText) { self.text = text }

    /// - Throws: `configurationInvalid`, with file and line, and the key where there is one. Never shows a value.
    static func entries(of text: ConfigurationText) throws(CertificateProviderError) -> [Entry] {
        var scanner = PropertyListScanner(text)
        try scanner.skipProlog()
        let root = try scanner.startTag()
        guard root.name == "plist", !root.isEmpty else {
            throw scanner.invalid("A property list begins with <plist>.")
        }
        let top = try scanner.startTag()
        guard top.name == "dict" else { throw scanner.invalid("A property list of settings has one dictionary.") }
        if !top.isEmpty { try scanner.scanDictionary(path: [], depth: 1) }
        try scanner.skipMiscellaneous()
        guard try scanner.takeEndTag() == "plist" else { throw scanner.invalid("</plist> is missing.") }
        try scanner.skipMiscellaneous()
        guard scanner.index == text.bytes.count else { throw scanner.invalid("There is something after </plist>.") }
        return scanner.entries
    }

    private var position: SourcePosition { SourcePosition(file: text.file, line: line) }

    private func invalid(_ problem: String) -> CertificateProviderError { position.invalid(problem) }

    private func invalid(_ problem: String, key: String) -> CertificateProviderError {
        position.invalid("The key '\(key.forDisplay)' \(problem).")
    }
}

// MARK: - Values

extension PropertyListScanner {
    private mutating func scanDictionary(path: [String], depth: Int) throws(CertificateProviderError) {
        guard depth <= Self.maximumDepth else {
            throw invalid("Dictionaries are nested deeper than \(Self.maximumDepth) levels.")
        }
        while true {
            try skipMiscellaneous()
            if let end = try takeEndTag() {
                guard end == "dict" else { throw invalid("</dict> is missing.") }
                return
            }
            let tag = try startTag()
            let start = position
            guard tag.name == "key" else { throw invalid("In a dictionary each value follows a <key>.") }
            let name = tag.isEmpty ? "" : try content(of: "key")
            guard !name.isEmpty else { throw start.invalid("The key is empty.") }
            let key = (path + [name]).joined(separator: ".")
            try register(key, at: start)
            try scanValue(of: key, path: path + [name], at: start, depth: depth)
        }
    }

    private mutating func register(_ key: String, at start: SourcePosition) throws(CertificateProviderError) {
        if let first = lines.updateValue(start.line, forKey: key) {
            throw start.invalid("The key '\(key.forDisplay)' is in line \(first) already; remove one of them.")
        }
        // Counted here and not only by Settings: swift-configuration's time grows with the square of it.
        guard lines.count <= Settings.maximumCount else {
            throw start.invalid("The file has more than \(Settings.maximumCount) keys.")
        }
    }

    private mutating func scanValue(
        of key: String, path: [String], at start: SourcePosition, depth: Int
    ) throws(CertificateProviderError) {
        let tag = try startTag()
        switch tag.name {
        case "dict":
            if !tag.isEmpty { try scanDictionary(path: path, depth: depth + 1) }
            return
        case "array":
            if !tag.isEmpty { try scanArray(of: key) }
            entries.append(Entry(key: key, kind: .other, position: start))
        default:
            entries.append(Entry(key: key, kind: try scanScalar(tag, of: key), position: start))
        }
    }

    /// swift-configuration reads arrays of one kind of scalar, and refuses the whole file for any other.
    private mutating func scanArray(of key: String) throws(CertificateProviderError) {
        var first: String?
        while true {
            try skipMiscellaneous()
            if let end = try takeEndTag() {
                guard end == "array" else { throw invalid("has an array without </array>", key: key) }
                return
            }
            let tag = try startTag()
            _ = try scanScalar(tag, of: key)
            let kind = ["string", "data"].contains(tag.name) ? tag.name : "number"
            guard kind == first ?? kind else { throw invalid("has an array of different kinds of values", key: key) }
            first = kind
        }
    }

    private mutating func scanScalar(_ tag: Tag, of key: String) throws(CertificateProviderError) -> Kind {
        let start = position
        let content = tag.isEmpty ? nil : try content(of: tag.name)
        switch tag.name {
        case "string": return .string
        case "true", "false":
            guard content ?? "" == "" else { throw start.invalid("<\(tag.name)/> has no content.") }
            return .boolean
        case "integer":
            let text = content ?? ""
            let digits = (text.hasPrefix("-") ? text.dropFirst() : text[...]).utf8
            guard (1...18).contains(digits.count), digits.allSatisfy(\.isDigit) else {
                throw invalid("must be an integer of decimal digits", key: key)
            }
            return .integer
        case "real" where content != nil, "data": return .other
        default: throw invalid("has a value that is not a string, boolean, integer or dictionary", key: key)
        }
    }
}

// MARK: - Markup

extension PropertyListScanner {
    private struct Tag {
        var name: String
        var isEmpty: Bool
    }

    private func isAt(_ mark: StaticString) -> Bool { text.bytes[index...].starts(with: mark.bytes) }

    /// Moves on, counting lines.
    private mutating func advance(to end: Int) {
        while index < end {
            let byte = text.bytes[index]
            index += 1
            if byte == .lineFeed || (byte == .carriageReturn && text.bytes[index...].first != .lineFeed) { line += 1 }
        }
    }

    /// Moves behind the next `mark`, and returns what is before it.
    private mutating func take(
        through mark: StaticString, of element: String
    ) throws(CertificateProviderError) -> ArraySlice<UInt8> {
        guard let range = text.bytes[index...].firstRange(of: mark.bytes) else {
            throw invalid("\(element) does not end.")
        }
        let taken = text.bytes[index..<range.lowerBound]
        advance(to: range.upperBound)
        return taken
    }

    private mutating func skipMiscellaneous() throws(CertificateProviderError) {
        while index < text.bytes.count {
            let byte = text.bytes[index]
            if byte.isBlank || byte.isLineEnd {
                advance(to: index + 1)
            } else if isAt("<!--") {
                advance(to: index + 4)
                _ = try take(through: "-->", of: "A comment")
            } else {
                return
            }
        }
    }

    private mutating func skipProlog() throws(CertificateProviderError) {
        try skipMiscellaneous()
        if isAt("<?xml") {
            let declaration = String(decoding: try take(through: "?>", of: "The XML declaration"), as: UTF8.self)
            if let encoding = declaration.lowercased().firstRange(of: "encoding") {
                let name = declaration.lowercased()[encoding.upperBound...].filter { !" =\t\r\n".contains($0) }
                guard name.dropFirst().hasPrefix("utf-8") else {
                    throw invalid("The XML declaration must say encoding=\"UTF-8\".")
                }
            }
        }
        try skipMiscellaneous()
        if isAt("<!DOCTYPE") {
            let type = try take(through: ">", of: "<!DOCTYPE")
            guard !type.contains(UInt8(ascii: "[")) else {
                throw invalid("The document type must not declare anything of its own; remove the part in [ ].")
            }
        }
    }

    private mutating func startTag() throws(CertificateProviderError) -> Tag {
        try skipMiscellaneous()
        guard isAt("<"), !isAt("</") else { throw invalid("A value is missing, or text stands outside of one.") }
        advance(to: index + 1)
        let name = takeName()
        // Only <plist> has an attribute, its version, and nothing depends on it.
        if name == "plist" {
            _ = try take(through: ">", of: "<plist>")
            return Tag(name: name, isEmpty: false)
        }
        skipWhitespace()
        let isEmpty = isAt("/")
        if isEmpty { advance(to: index + 1) }
        guard isAt(">") else { throw invalid("This markup is none of a property list.") }
        advance(to: index + 1)
        return Tag(name: name, isEmpty: isEmpty)
    }

    private mutating func takeEndTag() throws(CertificateProviderError) -> String? {
        guard isAt("</") else { return nil }
        advance(to: index + 2)
        let name = takeName()
        skipWhitespace()
        guard isAt(">") else { throw invalid("An end tag does not end.") }
        advance(to: index + 1)
        return name
    }

    private mutating func takeName() -> String {
        let name = text.bytes[index...].prefix { $0.isLetter }
        index = name.endIndex
        return String(decoding: name, as: UTF8.self)
    }

    private mutating func skipWhitespace() {
        while let byte = text.bytes[index...].first, byte.isBlank || byte.isLineEnd { advance(to: index + 1) }
    }

    /// Returns the text up to the end tag of `element`, which it takes as well.
    private mutating func content(of element: String) throws(CertificateProviderError) -> String {
        var result: [UInt8] = []
        while let byte = text.bytes[index...].first {
            switch byte {
            case UInt8(ascii: "&"):
                result.append(contentsOf: String(try entity()).utf8)
            case UInt8(ascii: "<") where isAt("<![CDATA["):
                advance(to: index + 9)
                result.append(contentsOf: try take(through: "]]>", of: "<![CDATA["))
            case UInt8(ascii: "<"):
                guard try takeEndTag() == element else { throw invalid("</\(element)> is missing.") }
                return String(decoding: result, as: UTF8.self)
            default:
                result.append(byte)
                advance(to: index + 1)
            }
        }
        throw invalid("</\(element)> is missing.")
    }

    private mutating func entity() throws(CertificateProviderError) -> Unicode.Scalar {
        let problem = "Only &lt; &gt; &amp; &quot; &apos; and characters by number, such as &#233;, are read."
        // The longest is &#x10FFFF; — looking no further keeps a lone & from being searched for to the end.
        let window = text.bytes[index...].prefix(10)
        guard let end = window.firstIndex(of: UInt8(ascii: ";")) else { throw invalid(problem) }
        let name = String(decoding: text.bytes[(index + 1)..<end], as: UTF8.self)
        let scalar: Unicode.Scalar? =
            switch name {
            case "lt": "<"
            case "gt": ">"
            case "amp": "&"
            case "quot": "\""
            case "apos": "'"
            case _ where name.hasPrefix("#x"): UInt32(name.dropFirst(2), radix: 16).flatMap { Unicode.Scalar($0) }
            case _ where name.hasPrefix("#"): UInt32(name.dropFirst(1)).flatMap { Unicode.Scalar($0) }
            default: nil
            }
        guard let scalar, scalar.value >= 0x20 || "\t\n\r".unicodeScalars.contains(scalar) else {
            throw invalid(problem)
        }
        index = end + 1
        return scalar
    }
}

extension StaticString {
    fileprivate var bytes: UnsafeBufferPointer<UInt8> {
        UnsafeBufferPointer(start: utf8Start, count: utf8CodeUnitCount)
    }
}

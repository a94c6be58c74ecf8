import CertificateProviding

/// Reads the markup of an XML property list and counts the lines.
///
/// Not a general XML reader. These are errors: attributes other than those of `<plist>`, an internal DTD subset,
/// entities other than XML's own five, and encodings other than UTF-8.
struct PropertyListMarkup {
    private let text: ConfigurationText
    private(set) var index = 0
    private var line = 1

    init(_ text: ConfigurationText) { self.text = text }

    var isAtEnd: Bool { index == text.bytes.count }

    var position: SourcePosition { SourcePosition(file: text.file, line: line) }

    private func invalid(_ problem: String) -> ProviderError { position.invalid(problem) }

    struct Tag {
        var name: String
        var isEmpty: Bool
    }

    private func isAt(_ mark: StaticString) -> Bool { text.bytes[index...].starts(with: mark.bytes) }

    /// Advances to `end` and counts the lines.
    private mutating func advance(to end: Int) {
        while index < end {
            let byte = text.bytes[index]
            index += 1
            if byte == .lineFeed || (byte == .carriageReturn && text.bytes[index...].first != .lineFeed) { line += 1 }
        }
    }

    /// Advances past the next `mark`, and returns the text before it.
    private mutating func take(
        through mark: StaticString, of element: String
    ) throws(ProviderError) -> ArraySlice<UInt8> {
        guard let range = text.bytes[index...].firstRange(of: mark.bytes) else {
            throw invalid("\(element) is not closed.")
        }
        let taken = text.bytes[index..<range.lowerBound]
        advance(to: range.upperBound)
        return taken
    }

    /// Skips white space and comments.
    mutating func skipMiscellaneous() throws(ProviderError) {
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

    /// Skips the XML declaration and the document type.
    mutating func skipProlog() throws(ProviderError) {
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
                throw invalid("The document type must not have an internal subset; remove the part in [ ].")
            }
        }
    }

    /// Reads a start tag, or the tag of an empty element.
    mutating func startTag() throws(ProviderError) -> Tag {
        try skipMiscellaneous()
        guard isAt("<"), !isAt("</") else { throw invalid("A value is missing, or there is text outside of a value.") }
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
        guard isAt(">") else { throw invalid("This markup is not permitted in a property list.") }
        advance(to: index + 1)
        return Tag(name: name, isEmpty: isEmpty)
    }

    /// Reads an end tag and returns its name; `nil` if the next markup is not an end tag.
    mutating func takeEndTag() throws(ProviderError) -> String? {
        guard isAt("</") else { return nil }
        advance(to: index + 2)
        let name = takeName()
        skipWhitespace()
        guard isAt(">") else { throw invalid("An end tag is not closed.") }
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

    /// Reads the text up to the end tag of `element`, and the end tag.
    mutating func content(of element: String) throws(ProviderError) -> String {
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

    private mutating func entity() throws(ProviderError) -> Unicode.Scalar {
        let problem = "Only the entities &lt; &gt; &amp; &quot; &apos; and numeric ones, such as &#233;, are supported."
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

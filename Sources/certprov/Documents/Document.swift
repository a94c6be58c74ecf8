import CertificateProviding
import FoundationEssentials
import Glibc

/// A JSON document of the command. Stable and versioned; its keys are sorted.
protocol Document: Encodable {
    /// The document's `kind`.
    static var kind: String { get }
}

/// A document with the keys of every document, `apiVersion` and `kind`. Also used for a document inside another one.
struct Enveloped<Body: Document>: Encodable {
    private let body: Body
    private let warnings: [String]?

    /// Wraps a document.
    init(_ body: Body) { self.init(body, warnings: nil) }

    fileprivate init(_ body: Body, warnings: [String]?) {
        self.body = body
        self.warnings = warnings
    }

    private enum Key: String, CodingKey { case apiVersion, kind, warnings }

    /// Encodes the common keys beside those of the document.
    func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode("certprov/v1", forKey: .apiVersion)
        try container.encode(Body.kind, forKey: .kind)
        try container.encodeIfPresent(warnings, forKey: .warnings)
        try body.encode(to: encoder)
    }
}

extension Document {
    /// The document as one line of JSON, without characters that could do something at a terminal.
    /// - Parameter warnings: The warnings of the command; `nil` for a document without that key, such as an error.
    func json(warnings: [String]? = nil) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(Enveloped(self, warnings: warnings)), as: UTF8.self)
            .withEscapedControls
    }
}

/// An optional value that is encoded as `null`, so that its key is always present.
struct Nullable<Value: Encodable>: Encodable {
    let value: Value?

    /// Wraps a value.
    init(_ value: Value?) { self.value = value }

    /// Encodes the value or `null`.
    func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        if let value { try container.encode(value) } else { try container.encodeNil() }
    }
}

extension Date {
    /// The date in UTC, in the format of RFC 3339, to the second. Does not use a FormatStyle, whose setup takes a
    /// millisecond.
    var rfc3339: String {
        var seconds = time_t(timeIntervalSince1970.rounded(.down))
        var parts = tm()
        gmtime_r(&seconds, &parts)
        func digits(_ value: Int32, _ width: Int) -> String {
            let text = String(value)
            return String(repeating: "0", count: max(0, width - text.count)) + text
        }
        let date = "\(digits(parts.tm_year + 1900, 4))-\(digits(parts.tm_mon + 1, 2))-\(digits(parts.tm_mday, 2))"
        return date + "T\(digits(parts.tm_hour, 2)):\(digits(parts.tm_min, 2)):\(digits(parts.tm_sec, 2))Z"
    }
}

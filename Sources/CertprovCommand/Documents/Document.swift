public import FoundationEssentials
import Glibc

/// A JSON document of the command: stable, versioned, keys sorted.
public protocol Document: Encodable {
    /// The document's `kind`.
    static var kind: String { get }
}

/// A document with what every document begins with. A document inside another one is one of these too.
public struct Enveloped<Body: Document>: Encodable {
    private let body: Body
    private let warnings: [String]?

    public init(_ body: Body) { self.init(body, warnings: nil) }

    fileprivate init(_ body: Body, warnings: [String]?) {
        self.body = body
        self.warnings = warnings
    }

    private enum Key: String, CodingKey { case apiVersion, kind, warnings }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode("certprov/v1", forKey: .apiVersion)
        try container.encode(Body.kind, forKey: .kind)
        try container.encodeIfPresent(warnings, forKey: .warnings)
        try body.encode(to: encoder)
    }
}

extension Document {
    /// The document as one line of JSON.
    /// - Parameter warnings: What a person should know besides; `nil` for a document that has none, such as an error.
    public func json(warnings: [String]? = nil) throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(Enveloped(self, warnings: warnings)), as: UTF8.self)
    }
}

/// A value that is written as `null` when there is none: readers of the documents can rely on every key.
public struct Nullable<Value: Encodable>: Encodable {
    let value: Value?

    public init(_ value: Value?) { self.value = value }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        if let value { try container.encode(value) } else { try container.encodeNil() }
    }
}

extension Date {
    /// UTC, RFC 3339, to the second. Without a FormatStyle, which takes a millisecond to set up.
    public var rfc3339: String {
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

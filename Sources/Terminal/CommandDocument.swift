public import CertificateProviding
import FoundationEssentials

/// A result of a command as JSON: stable and versioned, with sorted keys. `apiVersion` (`certprov/v1`), `kind` and `warnings` are added
/// to its own keys.
public protocol CommandDocument: Encodable {
    /// The document's `kind`.
    static var kind: String { get }
}

extension CommandDocument {
    /// The document as one line of JSON, without characters that could do something at a terminal.
    ///
    /// - Parameter warnings: The warnings of the command; `nil` for a document without that key, such as an error.
    /// - Throws: `internal` for a value that JSON does not have.
    public func json(warnings: [String]? = nil) throws(ProviderError) -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        do {
            return String(decoding: try encoder.encode(Enveloped(self, warnings: warnings)), as: UTF8.self)
                .withEscapedControls
        } catch {
            throw ProviderError(.internal, "The result cannot be written as JSON.", underlying: error)
        }
    }
}

/// A document with the keys of every document. Also used for a document inside another one.
package struct Enveloped<Body: CommandDocument>: Encodable {
    private let body: Body
    private let warnings: [String]?

    package init(_ body: Body) { self.init(body, warnings: nil) }

    fileprivate init(_ body: Body, warnings: [String]?) { (self.body, self.warnings) = (body, warnings) }

    private enum Key: String, CodingKey { case apiVersion, kind, warnings }

    /// Encodes the common keys beside those of the document.
    package func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: Key.self)
        try container.encode("certprov/v1", forKey: .apiVersion)
        try container.encode(Body.kind, forKey: .kind)
        try container.encodeIfPresent(warnings, forKey: .warnings)
        try body.encode(to: encoder)
    }
}

/// An optional value that is encoded as `null`, so that its key is always present.
public struct Nullable<Value: Encodable>: Encodable {
    /// The value.
    package let value: Value?

    /// Wraps a value.
    public init(_ value: Value?) { self.value = value }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        if let value { try container.encode(value) } else { try container.encodeNil() }
    }
}

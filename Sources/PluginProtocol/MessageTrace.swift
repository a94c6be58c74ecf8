import CertificateProviding
import FoundationEssentials

/// A message as people read it: without secrets, and with long values cut off.
package enum MessageTrace {
    /// The greatest number of characters of a value that is shown.
    private static let maximumValue = 100
    /// The greatest number of characters of a message that is shown.
    private static let maximumMessage = 2000

    /// Returns a line such as `1 obtain {"mayAsk":true}`, `result of 1 {…}`, `error of 1 {…}` or `notice log {…}`.
    ///
    /// A line that is not a message is shown, too, unless it may hold a secret.
    package static func text(of line: some BidirectionalCollection<UInt8>) -> String {
        let line = Data(line.last == 0x0a ? line.dropLast() : line.dropLast(0))
        guard line.count <= Message.maximumSize, let value = try? JSONDecoder().decode(JSONValue.self, from: line),
            case .object(let fields) = value
        else { return "not a message: \(garbage(line))" }
        let id = fields["id"].map { $0.text }
        let text: String
        switch (fields["request"], fields["notice"], fields["error"]) {
        case (.string(let name)?, _, _): text = "\(id ?? "without id") \(shortened(name)) \(body(fields["params"]))"
        case (_, .string(let name)?, _): text = "notice \(shortened(name)) \(body(fields["params"]))"
        case (_, _, let error?): text = "error of \(id ?? "nothing") \(error.text)"
        default: text = "result of \(id ?? "nothing") \(body(fields["result"]))"
        }
        return cut(text.withVisibleControls, maximumMessage)
    }

    private static func body(_ value: JSONValue?) -> String { value?.text ?? "{}" }

    private static func garbage(_ line: Data) -> String {
        let text = String(decoding: line.prefix(4 * maximumValue), as: UTF8.self)
        // A message that is cut off may have one. The name of one that is nearly JSON may have other quotes, or none.
        guard !text.lowercased().contains(Secret.key), line.count <= Message.maximumSize else {
            return "\(line.count) bytes, which may hold a secret"
        }
        return "'\(shortened(text.withVisibleControls))'"
    }

    fileprivate static func shortened(_ text: String) -> String { cut(text, maximumValue) }

    private static func cut(_ text: String, _ maximum: Int) -> String {
        text.count <= maximum ? text : "\(text.prefix(maximum))… (\(text.count) characters)"
    }
}

/// Any JSON value.
private enum JSONValue: Decodable {
    case null, bool(Bool), number(String), string(String), array([JSONValue]), object([String: JSONValue])

    init(from decoder: any Decoder) throws {
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .number("\(value)")
        } else if let value = try? container.decode(Double.self) {
            self = .number("\(value)")
        } else if let value = try? container.decode(String.self) {
            self = .string(value)
        } else if let value = try? container.decode([JSONValue].self) {
            self = .array(value)
        } else {
            self = .object(try container.decode([String: JSONValue].self))
        }
    }

    /// JSON with fields in alphabetical order, where a secret is `…`.
    var text: String {
        switch self {
        case .null: "null"
        case .bool(let value): "\(value)"
        case .number(let value): value
        // JSON within JSON.
        case .string(let value) where value.contains("\"\(Secret.key)\""): "…"
        case .string(let value): "\"\(MessageTrace.shortened(value))\""
        case .array(let values): "[\(values.map(\.text).joined(separator: ","))]"
        case .object(let fields):
            "{"
                + fields.sorted { $0.key < $1.key }.map { name, value in
                    "\"\(MessageTrace.shortened(name))\":\(name == Secret.key ? "…" : value.text)"
                }.joined(separator: ",") + "}"
        }
    }
}

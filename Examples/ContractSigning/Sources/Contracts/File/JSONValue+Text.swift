public import CertificateProviding

extension JSONValue {
    /// The most that a text has by default, in bytes.
    public static let maximumSize = 80 << 20
    /// The most levels that a text has by default; the outermost value is the first.
    public static let maximumDepth = 16
    /// The most values that a text has: each takes many times its two bytes in memory.
    public static let maximumValues = 1 << 20

    /// Reads a JSON text (RFC 8259) in UTF-8. A member that is there twice is refused: which one counts differs from reader to reader.
    ///
    /// - Throws: `malformedData`, whose message begins with the path of the member, such as `customer.mode`; for too many levels, with the
    ///   member of the outermost object that has them.
    public init(
        parsing bytes: [UInt8], maximumSize: Int = maximumSize, maximumDepth: Int = maximumDepth
    ) throws(ProviderError) {
        self = try JSONReader.read(
            bytes, maximumSize: maximumSize, maximumDepth: maximumDepth, acceptsDuplicates: false)
    }

    /// The text of the value: UTF-8 without white space.
    public var bytes: [UInt8] { bytes(sortedKeys: false) }

    /// The text of the value: UTF-8 without white space.
    ///
    /// - Parameter sortedKeys: Whether the members of each object are in the order of their UTF-8; else they are as they are.
    public func bytes(sortedKeys: Bool) -> [UInt8] {
        var bytes: [UInt8] = []
        write(to: &bytes, sortedKeys)
        return bytes
    }

    private func write(to bytes: inout [UInt8], _ sortedKeys: Bool) {
        switch self {
        case .null: bytes += "null".utf8
        case .bool(let value): bytes += (value ? "true" : "false").utf8
        case .number(let text): bytes += text.utf8
        case .string(let text): Self.write(text, to: &bytes)
        case .array(let elements):
            bytes.append(UInt8(ascii: "["))
            for (index, element) in elements.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                element.write(to: &bytes, sortedKeys)
            }
            bytes.append(UInt8(ascii: "]"))
        case .object(var members):
            if sortedKeys { members.sort { $0.name.utf8.lexicographicallyPrecedes($1.name.utf8) } }
            bytes.append(UInt8(ascii: "{"))
            for (index, member) in members.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                Self.write(member.name, to: &bytes)
                bytes.append(UInt8(ascii: ":"))
                member.value.write(to: &bytes, sortedKeys)
            }
            bytes.append(UInt8(ascii: "}"))
        }
    }

    private static func write(_ text: String, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\""))
        var text = text
        text.withUTF8 { utf8 in
            var start = 0
            while let end = JSONReader.endOfPlainText(in: utf8, from: start) {
                bytes.append(contentsOf: utf8[start..<end])
                bytes += escape(utf8[end])
                start = end + 1
            }
            bytes.append(contentsOf: utf8[start...])
        }
        bytes.append(UInt8(ascii: "\""))
    }

    private static func escape(_ byte: UInt8) -> [UInt8] {
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"): [UInt8(ascii: "\\"), byte]
        case 0x0a: Array("\\n".utf8)
        case 0x0d: Array("\\r".utf8)
        case 0x09: Array("\\t".utf8)
        default: Array("\\u00".utf8) + DisplayText.hexadecimal([byte]).utf8
        }
    }
}

import CertificateProviding
import FoundationEssentials

/// A `data:` URI (RFC 2397) with `;base64`: a document in a file, or the reference in its place.
struct DataURI {
    /// The media type with its parameters, as it was written; may be empty.
    let type: String
    /// What follows the comma.
    let body: Substring.UTF8View

    private static let prefix = "data:"
    private static let encoding = ";base64"
    /// The most that the part before the comma may have, in bytes.
    private static let maximumHead = 255

    /// - Returns: `nil` for another text.
    init?(_ text: String) {
        // By bytes: a mark on a comma would be one character with it.
        let bytes = text.utf8
        guard bytes.starts(with: Self.prefix.utf8),
            let comma = bytes.prefix(Self.maximumHead).firstIndex(of: UInt8(ascii: ","))
        else { return nil }
        let head = String(decoding: bytes[..<comma].dropFirst(Self.prefix.utf8.count), as: UTF8.self)
        guard head.utf8.allSatisfy({ $0 < 0x80 }), head.hasSuffix(Self.encoding) else { return nil }
        type = String(head.dropLast(Self.encoding.count))
        guard type.isEmpty || MediaType(type) != nil else { return nil }
        body = bytes[bytes.index(after: comma)...]
    }

    /// The URI of a content.
    static func text(type: String, _ content: [UInt8]) -> String {
        "\(prefix)\(type)\(encoding),\(Data(content).base64EncodedString())"
    }

    // MARK: - Content

    /// The size of the content; `nil` for a text that is no base64 by its length.
    var size: Int? {
        let count = body.count
        guard count % 4 == 0 else { return nil }
        let padding = body.suffix(2).count { $0 == UInt8(ascii: "=") }
        return count / 4 * 3 - padding
    }

    /// Decodes the content.
    ///
    /// - Returns: `nil` for a text that is no base64 (RFC 4648, section 4), or has bits that are lost: then other readers may see another
    ///   content, and the same text would not come out again.
    func content() -> [UInt8]? {
        guard let size, size > 0 else { return body.isEmpty ? [] : nil }
        return body.withContiguousStorageIfAvailable { Self.decode($0, size: size) } ?? Self.decode(Array(body), size)
    }

    private static func decode(_ text: [UInt8], _ size: Int) -> [UInt8]? {
        text.withUnsafeBufferPointer { decode($0, size: size) }
    }

    private static func decode(_ text: UnsafeBufferPointer<UInt8>, size: Int) -> [UInt8]? {
        var isValid = true
        let content = [UInt8](unsafeUninitializedCapacity: size) { content, count in
            table.withUnsafeBufferPointer { table in
                var (place, group) = (0, 0)
                while group < text.count {
                    // Only the last group may end with one or two = in the place of zeros.
                    let isLast = group + 4 == text.count
                    let present = isLast ? size - place + 1 : 4
                    var bits: UInt32 = 0
                    for index in 0..<4 {
                        let value = index < present ? table[Int(text[group + index])] : 0
                        guard value < 64, index < present || text[group + index] == UInt8(ascii: "=") else {
                            isValid = false
                            return
                        }
                        bits = bits << 6 | UInt32(value)
                    }
                    for index in 0..<(present - 1) {
                        content[place] = UInt8(truncatingIfNeeded: bits >> (16 - 8 * UInt32(index)))
                        place += 1
                    }
                    if present < 4, bits & (present == 2 ? 0xffff : 0xff) != 0 {
                        isValid = false
                        return
                    }
                    group += 4
                }
                count = place
            }
        }
        return isValid ? content : nil
    }

    /// The value of each character; 64 for one that is none of base64.
    private static let table: [UInt8] = {
        var table = [UInt8](repeating: 64, count: 256)
        for (value, character) in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8.enumerated() {
            table[Int(character)] = UInt8(value)
        }
        return table
    }()
}

extension DocumentReference {
    private static let scheme = "sha256:"

    /// The text in the place of the document's `data:` URI: `data:TYPE;base64,sha256:DIGEST,SIZE`.
    public func placeholder(type: String) -> String { "data:\(type);base64,\(Self.scheme)\(sha256),\(size)" }

    /// Reads what ``placeholder(type:)`` writes; `nil` for another text.
    public static func reading(placeholder text: String) -> (type: String, document: DocumentReference)? {
        guard text.utf8.count <= 512, let uri = DataURI(text) else { return nil }
        let parts = String(Substring(uri.body)).split(separator: ",", omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0].hasPrefix(scheme), let size = Int(parts[1]),
            let document = DocumentReference(sha256: String(parts[0].dropFirst(scheme.count)), size: size),
            // One text for each reference.
            JSONValue.isSame(document.placeholder(type: uri.type), text)
        else { return nil }
        return (uri.type, document)
    }
}

import CertificateProviding
import FoundationEssentials

/// A URL of a request or a reply: `scheme://operation?name=value&…`. One reader and writer, whatever carries it.
///
/// A value is percent-decoded once, and a plus in it is a plus. Of a value that is not UTF-8 afterwards, the wrong bytes become U+FFFD.
public struct RequestURL: Sendable, Equatable {
    /// The scheme, in lower case.
    package var scheme: String
    /// The host, in lower case: the operation.
    package var host: String
    /// The items of the query, in their order.
    package var items: [Item]

    /// A name and its value.
    package struct Item: Sendable, Equatable {
        /// Decoded, such as `request-id`.
        package var name: String
        /// Decoded.
        package var value: String

        /// Creates an item.
        package init(_ name: String, _ value: String) { (self.name, self.value) = (name, value) }
    }

    /// Creates a URL.
    ///
    /// - Parameter items: Of the query, in their order.
    package init(scheme: String, host: String, items: [Item]) {
        (self.scheme, self.host, self.items) = (scheme, host, items)
    }

    /// Reads a URL; `nil` for bytes that are not one. A line end after it does not count.
    ///
    /// Needs a scheme and `//` (RFC 3986, section 3); user, port, path and fragment are ignored. All characters must be visible
    /// ASCII, and each `%` must stand before two hexadecimal digits.
    package init?(_ bytes: some RandomAccessCollection<UInt8>) {
        var text = bytes[...]
        if text.last == 0x0a { text = text.dropLast() }
        if text.last == 0x0d { text = text.dropLast() }
        guard text.allSatisfy({ (0x21...0x7e).contains($0) }), let colon = text.firstIndex(of: UInt8(ascii: ":")) else {
            return nil
        }
        let scheme = String(decoding: text[..<colon], as: UTF8.self).lowercased()
        guard Self.isScheme(scheme) else { return nil }
        text = text[colon...].dropFirst()
        guard text.starts(with: "//".utf8) else { return nil }
        text = text.dropFirst(2)
        if let fragment = text.firstIndex(of: UInt8(ascii: "#")) { text = text[..<fragment] }
        let end = text.firstIndex { $0 == UInt8(ascii: "/") || $0 == UInt8(ascii: "?") } ?? text.endIndex
        var authority = text[..<end]
        if let at = authority.lastIndex(of: UInt8(ascii: "@")) { authority = authority[at...].dropFirst() }
        if let port = authority.lastIndex(of: UInt8(ascii: ":")) { authority = authority[..<port] }
        self.scheme = scheme
        host = String(decoding: authority, as: UTF8.self).lowercased()
        items = []
        guard let question = text.firstIndex(of: UInt8(ascii: "?")) else { return }
        for part in text[question...].dropFirst().split(separator: UInt8(ascii: "&")) {
            let equals = part.firstIndex(of: UInt8(ascii: "="))
            guard let name = Self.decoded(part[..<(equals ?? part.endIndex)]),
                let value = Self.decoded(equals.map { part[$0...].dropFirst() } ?? part[part.endIndex...])
            else { return nil }
            items.append(Item(name, value))
        }
    }

    /// The value of the first item with a name.
    package subscript(name: String) -> String? { items.first { $0.name == name }?.value }

    /// The URL as text. All of a value but letters, digits, `-`, `.`, `_` and `~` is percent-encoded.
    public var text: String {
        var bytes = Array("\(scheme)://\(host)".utf8)
        bytes.reserveCapacity(
            bytes.count + items.reduce(0) { $0 + $1.name.utf8.count + $1.value.utf8.count * 17 / 16 + 8 })
        for (index, item) in items.enumerated() {
            bytes.append(UInt8(ascii: index == 0 ? "?" : "&"))
            bytes += ByteText.percentEncoded(item.name.utf8).utf8
            bytes.append(UInt8(ascii: "="))
            bytes += ByteText.percentEncoded(item.value.utf8).utf8
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Whether a text is a scheme (RFC 3986, section 3.1).
    package static func isScheme(_ text: String) -> Bool {
        guard let first = text.utf8.first, isLetter(first) else { return false }
        return text.utf8.allSatisfy { isLetter($0) || isDigit($0) || "+-.".utf8.contains($0) }
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (0x30...0x39).contains(byte) }

    private static func isLetter(_ byte: UInt8) -> Bool { (0x61...0x7a).contains(byte | 0x20) }

    private static func decoded(_ bytes: some RandomAccessCollection<UInt8>) -> String? {
        // A document is mostly base64: it is copied once.
        guard bytes.contains(UInt8(ascii: "%")) else { return String(decoding: bytes, as: UTF8.self) }
        return ByteText.percentDecoded(bytes).map { String(decoding: $0, as: UTF8.self) }
    }
}

extension String {
    /// The bytes of which this is the one base64 text, with padding (RFC 4648, section 4); `nil` for another text.
    package var strictBase64: [UInt8]? {
        guard let data = Data(base64Encoded: self), data.base64EncodedString() == self else { return nil }
        return Array(data)
    }
}

extension [UInt8] {
    package var base64: String { Data(self).base64EncodedString() }
}

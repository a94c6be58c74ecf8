import FoundationEssentials
import Glibc

/// Bytes as text for protocols. ``DisplayText`` has those for people.
public enum ByteText {
    /// Returns the bytes of pairs of hexadecimal digits, without separators; `nil` for another text.
    public static func bytes(hexadecimal text: some StringProtocol) -> [UInt8]? {
        let digits = text.utf8.compactMap(\.hexadecimalValue)
        guard digits.count == text.utf8.count, digits.count.isMultiple(of: 2) else { return nil }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }

    /// Returns base64 with the alphabet for URLs and without padding (RFC 4648, section 5).
    public static func base64URL(_ bytes: some Sequence<UInt8>) -> String {
        Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    /// Returns the bytes with `%` and two upper-case hexadecimal digits for each that does not stand for itself (RFC 3986, section 2.1).
    ///
    /// - Parameter isVerbatim: Whether a byte of ASCII stands for itself; by default the unreserved characters (section 2.3) do.
    public static func percentEncoded(
        _ bytes: some Sequence<UInt8>, except isVerbatim: (UInt8) -> Bool = ByteText.isUnreserved
    ) -> String {
        let digits = Array("0123456789ABCDEF".utf8)
        var text: [UInt8] = []
        text.reserveCapacity(bytes.underestimatedCount)
        for byte in bytes {
            if isVerbatim(byte) {
                text.append(byte)
            } else {
                text += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// Decodes `%` and two hexadecimal digits (RFC 3986, section 2.1). No other copy of the decoded bytes remains.
    ///
    /// - Returns: `nil` where two digits do not follow.
    public static func percentDecoded(_ text: some Sequence<UInt8>) -> [UInt8]? {
        var bytes: [UInt8] = []
        // Not to be copied as it grows.
        bytes.reserveCapacity(text.underestimatedCount)
        var rest = text.makeIterator()
        while let byte = rest.next() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let high = rest.next()?.hexadecimalValue, let low = rest.next()?.hexadecimalValue else { return nil }
            bytes.append(high << 4 | low)
        }
        return bytes
    }

    /// Whether a byte is an unreserved character: a letter or digit of ASCII, `-`, `.`, `_` or `~`.
    public static func isUnreserved(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
            UInt8(ascii: "~"):
            true
        default: false
        }
    }
}

extension UInt8 {
    /// The value of a hexadecimal digit in ASCII; `nil` for another byte.
    package var hexadecimalValue: UInt8? {
        switch self {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): self - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): self - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): self - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}

/// Returns the text of an `errno` value.
package func errorText(_ code: Int32) -> String { String(cString: strerror(code)) }

extension String {
    /// The text without blanks, tabs and line ends at both ends, like Java's `String.trim()`.
    package var trimmed: String {
        let scalars = unicodeScalars
        guard let first = scalars.firstIndex(where: { $0.value > 0x20 }),
            let last = scalars.lastIndex(where: { $0.value > 0x20 })
        else { return "" }
        return String(scalars[first...last])
    }
}

import CertificateProviding

/// A body of type `application/x-www-form-urlencoded` (RFC 6749, appendix B).
struct FormBody: Sendable {
    private(set) var bytes: [UInt8] = []

    mutating func append(_ name: String, _ value: String) { append(name, encoded: Self.encoded(value.utf8)) }

    mutating func append(_ name: String, _ value: SecretBytes) {
        append(name, encoded: value.withUnsafeBytes { Self.encoded($0) })
    }

    private mutating func append(_ name: String, encoded value: [UInt8]) {
        if !bytes.isEmpty { bytes.append(UInt8(ascii: "&")) }
        bytes += Self.encoded(name.utf8) + [UInt8(ascii: "=")] + value
    }

    static func encoded(_ bytes: some Sequence<UInt8>) -> [UInt8] {
        bytes.flatMap { byte -> [UInt8] in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
                UInt8(ascii: "*"):
                [byte]
            case 0x20: [UInt8(ascii: "+")]
            default: [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
            }
        }
    }

    private static let digits = Array("0123456789ABCDEF".utf8)
}

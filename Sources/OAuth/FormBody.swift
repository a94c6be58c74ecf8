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
        let text = ByteText.percentEncoded(bytes) { byte in
            " *".utf8.contains(byte) || ByteText.isUnreserved(byte) && byte != UInt8(ascii: "~")
        }
        return text.utf8.map { $0 == UInt8(ascii: " ") ? UInt8(ascii: "+") : $0 }
    }
}

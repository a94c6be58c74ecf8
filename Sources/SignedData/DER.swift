/// The little of DER (X.690) that a SignedData needs. Content that is not in memory needs a header apart from it, which
/// swift-asn1 does not write.
enum DER {
    static let integer: UInt8 = 0x02
    static let octetString: UInt8 = 0x04
    static let sequence: UInt8 = 0x30
    static let set: UInt8 = 0x31
    static let null: [UInt8] = [0x05, 0]
    /// id-data (RFC 5652, section 4).
    static let data = objectIdentifier([1, 2, 840, 113549, 1, 7, 1])
    /// id-signedData (section 5.1).
    static let signedData = objectIdentifier([1, 2, 840, 113549, 1, 7, 2])

    /// A constructed context-specific tag.
    static func context(_ number: UInt8) -> UInt8 { 0xa0 | number }

    /// A tag and a length.
    static func header(_ tag: UInt8, _ count: Int) -> [UInt8] {
        guard count >= 0x80 else { return [tag, UInt8(count)] }
        let bytes = withUnsafeBytes(of: count.bigEndian) { Array($0.drop { $0 == 0 }) }
        return [tag, 0x80 | UInt8(bytes.count)] + bytes
    }

    static func value(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] { header(tag, content.count) + content }

    static func objectIdentifier(_ numbers: [UInt]) -> [UInt8] {
        let first = numbers.prefix(2).reduce(0) { $0 * 40 + $1 }
        return value(0x06, ([first] + numbers.dropFirst(2)).flatMap(base128))
    }

    private static func base128(_ number: UInt) -> [UInt8] {
        var (bytes, rest) = ([UInt8(number & 0x7f)], number >> 7)
        while rest > 0 {
            bytes.insert(0x80 | UInt8(rest & 0x7f), at: 0)
            rest >>= 7
        }
        return bytes
    }

    static func algorithm(_ identifier: [UInt], _ parameters: [UInt8] = []) -> [UInt8] {
        value(sequence, objectIdentifier(identifier) + parameters)
    }
}

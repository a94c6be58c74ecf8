/// A value in CBOR (RFC 8949), as attestation statements need it. Nothing is read in it.
indirect enum CBOR {
    case integer(Int)
    case bytes([UInt8])
    case text(String)
    case array([CBOR])
    case map([String: CBOR])

    /// The deterministic encoding (section 4.2.1): one for each value.
    var encoded: [UInt8] {
        switch self {
        case .integer(let number): number < 0 ? Self.head(1, UInt64(-1 - number)) : Self.head(0, UInt64(number))
        case .bytes(let bytes): Self.head(2, UInt64(bytes.count)) + bytes
        case .text(let text): Self.head(3, UInt64(text.utf8.count)) + Array(text.utf8)
        case .array(let members): Self.head(4, UInt64(members.count)) + members.flatMap(\.encoded)
        case .map(let members):
            Self.head(5, UInt64(members.count))
                + members.map { (CBOR.text($0).encoded, $1.encoded) }.sorted { $0.0.lexicographicallyPrecedes($1.0) }
                .flatMap { $0 + $1 }
        }
    }

    /// The type of a value, and its number or size in the shortest form (section 3).
    private static func head(_ type: UInt8, _ value: UInt64) -> [UInt8] {
        if value < 24 { return [type << 5 | UInt8(value)] }
        let power: UInt8 = value <= 0xff ? 0 : value <= 0xffff ? 1 : value <= 0xffff_ffff ? 2 : 3
        return [type << 5 | (24 + power)]
            + (0..<(1 << power)).reversed().map { UInt8(truncatingIfNeeded: value >> (8 * UInt64($0))) }
    }
}

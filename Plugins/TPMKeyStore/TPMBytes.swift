/// Reads the form of TPM 2.0 Part 1, section 4.2: big-endian numbers, and bytes after their number.
struct TPMReader {
    private var rest: ArraySlice<UInt8>
    struct Failure: Error {}

    init(_ bytes: some Collection<UInt8>) { rest = ArraySlice(Array(bytes)) }

    var isAtEnd: Bool { rest.isEmpty }

    mutating func bytes(_ count: Int) throws(Failure) -> [UInt8] {
        guard count <= rest.count else { throw Failure() }
        defer { rest = rest.dropFirst(count) }
        return Array(rest.prefix(count))
    }

    mutating func uint16() throws(Failure) -> UInt16 { try bytes(2).reduce(0) { $0 << 8 | UInt16($1) } }
    mutating func uint32() throws(Failure) -> UInt32 { try bytes(4).reduce(0) { $0 << 8 | UInt32($1) } }
    mutating func sized() throws(Failure) -> [UInt8] { try bytes(Int(try uint16())) }
}

extension FixedWidthInteger {
    /// The number, big-endian.
    var tpmBytes: [UInt8] { withUnsafeBytes(of: bigEndian) { Array($0) } }
}

extension [UInt8] {
    /// The bytes after their number.
    var tpmSized: [UInt8] { UInt16(truncatingIfNeeded: count).tpmBytes + self }

    /// The number in `count` bytes.
    func padded(to count: Int) -> [UInt8] {
        let number = drop { $0 == 0 }
        return [UInt8](repeating: 0, count: Swift.max(0, count - number.count)) + number
    }
}

/// The identifiers of algorithms and curves (TCG Algorithm Registry).
enum TPMAlgorithm {
    static let (rsa, ecc, aes, null): (UInt16, UInt16, UInt16, UInt16) = (0x0001, 0x0023, 0x0006, 0x0010)
    static let (sha1, sha256, sha384, sha512): (UInt16, UInt16, UInt16, UInt16) = (0x0004, 0x000b, 0x000c, 0x000d)
    static let (rsassa, rsaes, rsapss, oaep): (UInt16, UInt16, UInt16, UInt16) = (0x0014, 0x0015, 0x0016, 0x0017)
    static let (ecdsa, cfb): (UInt16, UInt16) = (0x0018, 0x0043)
    static let (p256, p384): (UInt16, UInt16) = (0x0003, 0x0004)
}

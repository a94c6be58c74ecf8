/// Writes the results of a call in p11-kit's protocol.
struct RPCWriter {
    private(set) var bytes: [UInt8] = []

    init() {}

    /// Begins the answer to a call, with the types of its results.
    init(_ function: UInt32, _ signature: String) {
        write32(function)
        write(Array(signature.utf8))
    }

    /// Writes the answer to a call that has failed.
    init(_ code: ReturnCode) {
        self.init(0, "u")
        write(code.rawValue)
    }

    mutating func write(byte: UInt8) { bytes.append(byte) }

    mutating func write32(_ number: UInt32) {
        bytes += (0..<4).map { UInt8(truncatingIfNeeded: number >> (24 - 8 * $0)) }
    }

    /// `u`.
    mutating func write(_ number: UInt64) {
        bytes += (0..<8).map { UInt8(truncatingIfNeeded: number >> (56 - 8 * $0)) }
    }

    /// Bytes after their number.
    mutating func write(_ value: [UInt8]) {
        write32(UInt32(value.count))
        bytes += value
    }

    /// `s`: a text, filled with blanks.
    mutating func write(_ text: String, padded size: Int) {
        let text = Array(text.utf8.prefix(size))
        write(text + Array(repeating: UInt8(ascii: " "), count: size - text.count))
    }

    /// `v`.
    mutating func write(version major: UInt8, _ minor: UInt8) { bytes += [major, minor] }

    /// `ay`: bytes, or only their number where the caller has too little room.
    mutating func write(_ value: [UInt8], room: Int?) {
        let fits = value.count <= room ?? -1
        write(byte: fits ? 1 : 0)
        if fits { write(value) } else { write32(UInt32(value.count)) }
    }

    /// `au`: numbers, or only how many where the caller has too little room.
    mutating func write(numbers: [UInt64], room: Int) {
        let fits = numbers.count <= room
        write(byte: fits ? 1 : 0)
        write32(UInt32(numbers.count))
        if fits { for number in numbers { write(number) } }
    }

    /// An attribute of `aA`. `nil` for one that the caller does not get.
    ///
    /// - Parameter isSizeOnly: The caller asks for the size of the value.
    mutating func write(_ type: AttributeType, _ value: AttributeValue?, isSizeOnly: Bool) {
        write32(type.rawValue)
        write(byte: value == nil ? 0 : 1)
        guard let value else { return }
        write32(UInt32(value.size))
        switch value {
        case .byte(let byte): write(byte: byte)
        case .number(let number): write(number)
        case .bytes where isSizeOnly: write32(.max)
        case .bytes(let bytes): write(bytes)
        case .numbers(let numbers):
            write32(UInt32(numbers.count))
            for number in numbers { write(number) }
        }
    }
}

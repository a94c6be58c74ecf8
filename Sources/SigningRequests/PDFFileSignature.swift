/// The signature of a PDF that covers the whole file (ISO 32000-2, 12.8.1): all bytes but the value of `/Contents`.
struct PDFFileSignature {
    /// The SignedData, without the zeros behind it.
    let message: [UInt8]
    /// The bytes that are signed.
    let content: [UInt8]

    /// Looks for the last `/ByteRange` behind a place; `nil` if there is none, or its signature does not cover the whole file.
    ///
    /// Nothing of a PDF is read but this array and the value between its ranges. A signature that covers all else leaves no room for
    /// anything that is not signed.
    init?(in file: [UInt8], after start: Int) {
        guard let place = Self.lastName("/ByteRange", in: file, after: start),
            let range = Self.numbers(file[place...]), range.count == 4
        else { return nil }
        let (gap, end) = (range[1], range[2])
        guard range[0] == 0, gap >= start, gap < end, end + range[3] == file.count, file[gap] == UInt8(ascii: "<"),
            file[end - 1] == UInt8(ascii: ">"), Self.precedes("/Contents", file[start..<gap]),
            let value = Self.bytes(file[gap..<end].dropFirst().dropLast()), let message = Self.message(value)
        else { return nil }
        self.message = message
        content = Array(file[..<gap]) + file[end...]
    }

    private static func isSpace(_ byte: UInt8) -> Bool { [0, 9, 10, 12, 13, 32].contains(byte) }

    /// The place behind the last occurrence of a name.
    private static func lastName(_ name: String, in file: [UInt8], after start: Int) -> Int? {
        let name = Array(name.utf8)
        guard file.count - name.count >= start else { return nil }
        return (start...(file.count - name.count)).last { file[$0] == name[0] && file[$0...].starts(with: name) }
            .map { $0 + name.count }
    }

    /// The numbers of an array, each of at most ten digits.
    private static func numbers(_ bytes: ArraySlice<UInt8>) -> [Int]? {
        var rest = bytes.drop(while: isSpace)
        guard rest.popFirst() == UInt8(ascii: "["), let end = rest.prefix(256).firstIndex(of: UInt8(ascii: "]")) else {
            return nil
        }
        let words = rest[..<end].split(whereSeparator: isSpace)
        let numbers = words.compactMap { word in
            word.count <= 10 && word.allSatisfy { (0x30...0x39).contains($0) }
                ? Int(String(decoding: word, as: UTF8.self)) : nil
        }
        return numbers.count == words.count ? numbers : nil
    }

    private static func precedes(_ name: String, _ bytes: ArraySlice<UInt8>) -> Bool {
        guard let end = bytes.lastIndex(where: { !isSpace($0) }) else { return false }
        return bytes[...end].suffix(name.utf8.count).elementsEqual(name.utf8)
    }

    /// Pairs of hexadecimal digits.
    private static func bytes(_ digits: ArraySlice<UInt8>) -> [UInt8]? {
        guard digits.count.isMultiple(of: 2) else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(digits.count / 2)
        var rest = digits
        while let high = rest.popFirst(), let low = rest.popFirst() {
            guard let high = hexadecimalDigit(high), let low = hexadecimalDigit(low) else { return nil }
            bytes.append(high << 4 | low)
        }
        return bytes
    }

    private static func hexadecimalDigit(_ byte: UInt8) -> UInt8? {
        Character(UnicodeScalar(byte)).hexDigitValue.map(UInt8.init)
    }

    /// A value of DER, with zeros behind it.
    private static func message(_ value: [UInt8]) -> [UInt8]? {
        guard value.count > 2, value[1] >= 0x80 else { return nil }
        let size = Int(value[1] & 0x7f)
        guard (1...4).contains(size), value.count >= 2 + size else { return nil }
        let count = 2 + size + value[2..<(2 + size)].reduce(0) { $0 << 8 | Int($1) }
        guard count <= value.count, value[count...].allSatisfy({ $0 == 0 }) else { return nil }
        return Array(value[..<count])
    }
}

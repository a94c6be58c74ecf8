/// The signature of a PDF that covers the whole file (ISO 32000-2, 12.8.1): all bytes but the value of `/Contents`.
///
/// It is found by text: the last `/ByteRange` that covers the file but for a gap decides. Others are of earlier signatures, or text. A
/// signature that covers all else leaves no room for bytes that are not signed. Nothing is verified here, and not read are the form
/// field that leads a viewer to the signature, and updates for long-term validation.
public struct PDFSignature: Sendable {
    /// The signed ranges of the file: offset, length, offset, length.
    public let byteRange: [Int]
    /// The SignedData (CMS) in DER, without the zeros behind it.
    public let cms: [UInt8]
    /// The signed bytes: those of the ranges.
    public let content: [UInt8]

    /// How many places with the name are looked at, from the end.
    private static let maximumPlaces = 100

    /// Finds the signature; `nil` if there is none. Takes time linear in the size of the file.
    ///
    /// - Parameter start: The length of the file before it was signed; `/ByteRange` and `/Contents` stand behind that.
    public init?(ofWhole file: [UInt8], after start: Int = 0) {
        guard (0...file.count).contains(start) else { return nil }
        let name = Array("/ByteRange".utf8)
        let places = file.indices[start...].reversed().lazy.filter {
            file[$0] == name[0] && file[$0...].starts(with: name)
        }
        for place in places.prefix(Self.maximumPlaces) {
            guard let range = Self.byteRange(in: file, at: place + name.count), range[1] >= start else { continue }
            guard let cms = Self.cms(in: file, at: range[1]..<range[2]), Self.isContents(file[start..<range[1]]) else {
                return nil
            }
            (byteRange, self.cms) = (range, cms)
            content = Array(file[..<range[1]]) + file[range[2]...]
            return
        }
        return nil
    }

    /// The four numbers of an array, if they are the file with one gap.
    private static func byteRange(in file: [UInt8], at place: Int) -> [Int]? {
        var scanner = PDFScanner(Array(file[place...].prefix(256)), isWhole: true)
        guard case .array(let values)? = try? scanner.value().content else { return nil }
        let numbers = values.map { if case .integer(let number) = $0.content { number } else { -1 } }
        guard numbers.count == 4, numbers[0] == 0, numbers[1] >= 0, numbers[1] < numbers[2], numbers[2] <= file.count,
            numbers[3] == file.count - numbers[2]
        else { return nil }
        return numbers
    }

    private static func isContents(_ before: ArraySlice<UInt8>) -> Bool {
        guard let end = before.lastIndex(where: { !PDFScanner.isSpace($0) }) else { return false }
        return before[...end].suffix(9).elementsEqual("/Contents".utf8)
    }

    /// The DER in a string of pairs of hexadecimal digits, without white space.
    private static func cms(in file: [UInt8], at gap: Range<Int>) -> [UInt8]? {
        guard file[gap.lowerBound] == UInt8(ascii: "<"), gap.count.isMultiple(of: 2) else { return nil }
        var scanner = PDFScanner(file, isWhole: true)
        scanner.index = gap.lowerBound
        guard let value = try? scanner.value(), value.range == gap, case .string(let bytes) = value.content,
            bytes.count == gap.count / 2 - 1, let size = sequenceSize(bytes), bytes[size...].allSatisfy({ $0 == 0 })
        else { return nil }
        return Array(bytes[..<size])
    }

    /// The size of the SEQUENCE that bytes begin with; `nil` if they do not have it whole.
    private static func sequenceSize(_ bytes: [UInt8]) -> Int? {
        guard bytes.count >= 2, bytes[0] == 0x30 else { return nil }
        var (header, length) = (2, Int(bytes[1]))
        if length >= 0x80 {
            header += length & 0x7f
            guard (3...6).contains(header), bytes.count >= header else { return nil }
            length = bytes[2..<header].reduce(0) { $0 << 8 | Int($1) }
        }
        return length <= bytes.count - header ? header + length : nil
    }
}

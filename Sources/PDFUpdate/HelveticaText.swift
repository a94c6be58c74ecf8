/// A text in the standard font Helvetica, in the encoding WinAnsiEncoding (ISO 32000-2, annex D).
struct HelveticaText {
    /// From byte 32, in thousandths of the font's size. Facts from Adobe's metrics of the font.
    private static let widths = [
        278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,
        556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,
        1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
        667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,
        333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,
        556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584, 350,
        556, 350, 222, 556, 333, 1000, 556, 556, 333, 1000, 667, 333, 1000, 350, 611, 350,
        350, 222, 222, 333, 333, 350, 556, 1000, 333, 1000, 500, 333, 944, 350, 500, 667,
        278, 333, 556, 556, 556, 556, 260, 556, 333, 737, 370, 556, 584, 333, 737, 333,
        400, 584, 333, 333, 333, 556, 537, 278, 333, 333, 365, 556, 834, 834, 834, 611,
        667, 667, 667, 667, 667, 667, 1000, 722, 667, 667, 667, 667, 278, 278, 278, 278,
        722, 722, 778, 778, 778, 778, 778, 584, 778, 722, 722, 722, 722, 667, 667, 611,
        556, 556, 556, 556, 556, 556, 889, 500, 556, 556, 556, 556, 278, 278, 278, 278,
        556, 556, 556, 556, 556, 556, 556, 584, 611, 556, 556, 556, 556, 500, 556, 500,
    ]

    /// The characters of the bytes 128 to 159. A space stands for none.
    private static let special = Array("€ ‚ƒ„…†‡ˆ‰Š‹Œ Ž  ‘’“”•–—˜™š›œ žŸ".unicodeScalars)

    let bytes: [UInt8]

    /// Encodes a text. Characters that the encoding does not have are spelled: `[U+0141]`, and several of them `[U+0141 0142]`.
    init(_ text: String) {
        var (bytes, wasSpelled): ([UInt8], Bool) = ([], false)
        for scalar in text.unicodeScalars {
            var isSpelled = false
            switch scalar.value {
            case 0x20...0x7e, 0xa0...0xac, 0xae...0xff: bytes.append(UInt8(scalar.value))
            default:
                if let index = Self.special.firstIndex(of: scalar) {
                    bytes.append(0x80 + UInt8(index))
                } else {
                    let digits = String(scalar.value, radix: 16, uppercase: true)
                    if wasSpelled { bytes.removeLast() }
                    bytes += (wasSpelled ? " " : "[U+").utf8
                    bytes += "\(String(repeating: "0", count: max(0, 4 - digits.count)))\(digits)]".utf8
                    isSpelled = true
                }
            }
            wasSpelled = isSpelled
        }
        self.bytes = bytes
    }

    private static func width(_ byte: UInt8) -> Int { widths[Int(max(byte, 32)) - 32] }

    /// Breaks the text into lines, at spaces, and within a word that is longer than a line.
    ///
    /// - Parameter width: Of a line, in thousandths of the font's size.
    func lines(width limit: Int) -> [ArraySlice<UInt8>] {
        var (lines, start, width, space): ([ArraySlice<UInt8>], Int, Int, Int?) = ([], 0, 0, nil)
        for (index, byte) in bytes.enumerated() {
            width += Self.width(byte)
            while width > limit, index > start, byte != 0x20 {
                let end = space ?? index
                lines.append(bytes[start..<end])
                (start, space) = (end, nil)
                width = bytes[start...index].reduce(0) { $0 + Self.width($1) }
            }
            if byte == 0x20 { space = index + 1 }
        }
        return lines + (start < bytes.count ? [bytes[start...]] : [])
    }
}

import Foundation

/// The signature over a whole PDF, in what was added to the original.
///
/// It is found by text: the last `/ByteRange`, `[0 b c d]`, that covers the file but for a gap, which is the `/Contents`: `<hex>`, DER
/// with zeros behind it. Others are of earlier signatures, or text. Not checked are the form field that leads a reader to it, the time
/// stamp in the CMS, a DSS, and the chain of the signer's certificate.
struct PDFSignature {
    /// The signed bytes: the file without the gap.
    let content: [UInt8]
    /// SignedData, DER.
    let cms: [UInt8]

    /// Of the gap. A CMS with a chain and a time stamp has some ten thousand bytes.
    private static let maximumGap = 1 << 20
    /// So many places with the name are looked at.
    private static let maximumTries = 100

    /// - Returns: `nil` where what follows the original has no such signature.
    init?(of pdf: [UInt8], after original: Int) {
        guard (0...pdf.count).contains(original) else { return nil }
        let name = Array("/ByteRange".utf8)
        var tries = Self.maximumTries
        for place in (original..<pdf.count).reversed() where pdf[place] == name[0] && tries > 0 {
            guard pdf[place...].starts(with: name) else { continue }
            tries -= 1
            guard let (start, end) = Self.gap(in: pdf, after: original, at: place + name.count),
                Self.isContents(pdf[original..<start]), let cms = Self.cms(in: pdf[start..<end])
            else { continue }
            (content, self.cms) = (Array(pdf[..<start]) + pdf[end...], cms)
            return
        }
        return nil
    }

    /// Returns where the part that is not signed starts and ends, by an array.
    private static func gap(in pdf: [UInt8], after original: Int, at place: Int) -> (start: Int, end: Int)? {
        // Three numbers of ten digits, and room for white space.
        let array = pdf[place...].prefix(200).drop(while: isSpace)
        guard array.first == UInt8(ascii: "["), let close = array.firstIndex(of: UInt8(ascii: "]")) else { return nil }
        let numbers = array[..<close].dropFirst().split(whereSeparator: isSpace).map {
            Int(String(decoding: $0, as: UTF8.self))
        }
        guard numbers.count == 4, numbers[0] == 0, let start = numbers[1], let end = numbers[2], let rest = numbers[3],
            start >= original, start < end, end <= pdf.count, rest == pdf.count - end, end - start <= maximumGap
        else { return nil }
        return (start, end)
    }

    private static func isContents(_ before: ArraySlice<UInt8>) -> Bool {
        guard let last = before.lastIndex(where: { !isSpace($0) }) else { return false }
        return before[...last].suffix(9).elementsEqual("/Contents".utf8)
    }

    private static func cms(in gap: ArraySlice<UInt8>) -> [UInt8]? {
        guard gap.count > 2, gap.count.isMultiple(of: 2), gap.first == UInt8(ascii: "<"),
            gap.last == UInt8(ascii: ">")
        else { return nil }
        var bytes: [UInt8] = []
        var high: UInt8?
        for character in gap.dropFirst().dropLast() {
            guard let digit = digit(character) else { return nil }
            if let first = high { bytes.append(first << 4 | digit) }
            high = high == nil ? digit : nil
        }
        guard let size = size(ofDER: bytes), bytes[size...].allSatisfy({ $0 == 0 }) else { return nil }
        return Array(bytes[..<size])
    }

    /// Returns the size of the SEQUENCE at the begin of bytes; `nil` if they do not have it whole.
    private static func size(ofDER bytes: [UInt8]) -> Int? {
        guard bytes.count >= 2, bytes[0] == 0x30 else { return nil }
        var (header, length) = (2, Int(bytes[1]))
        if length >= 0x80 {
            // A gap has no length of more than three bytes.
            let count = length & 0x7f
            guard (1...3).contains(count), bytes.count >= 2 + count else { return nil }
            header += count
            length = bytes[2..<header].reduce(0) { $0 << 8 | Int($1) }
        }
        return length <= bytes.count - header ? header + length : nil
    }

    /// White space of PDF (ISO 32000-1, section 7.2.2).
    private static func isSpace(_ byte: UInt8) -> Bool { [0, 9, 10, 12, 13, 32].contains(byte) }

    private static func digit(_ character: UInt8) -> UInt8? {
        switch character {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): character - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): character - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): character - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}

package import CertificateProviding
package import FoundationEssentials
import Glibc

/// The bytes that are appended to a document for a signature, and the ranges that the signature covers.
///
/// The signature is over the document and ``bytes`` but for ``contents``. It goes there by ``filled(with:)``.
package struct PDFSignatureUpdate: Sendable {
    /// The bytes that follow the document.
    package let bytes: [UInt8]
    /// The place of the signature in ``bytes``: hexadecimal digits between `<` and `>`, which belong to it.
    package let contents: Range<Int>
    /// The signed ranges of the whole file: offset, length, offset, length.
    package let byteRange: [Int]

    /// Writes the update.
    ///
    /// - Parameters:
    ///   - signer: The name of the signer.
    ///   - date: The time of signing.
    ///   - room: The length of the longest signature, in bytes.
    /// - Throws: `documentNotSignable` when the result has too many bytes.
    package init(
        of document: SignableDocument, by signer: String, date: Date, room: Int
    ) throws(ProviderError) {
        let time = Self.fields(of: date)
        var writer = UpdateWriter(document.base)
        let number = document.base.nextNumber
        writer.begin(PDFReference(number: number, generation: 0))
        writer.write("<< /Type /Sig /Filter /Adobe.PPKLite /SubFilter /ETSI.CAdES.detached /M (D:\(time.joined())Z)")
        let reason = document.request.reason
        for (name, value) in [("Name", signer), ("Reason", reason), ("Location", document.request.location)] {
            if let value { writer.write(" /\(name) " + Self.string(value)) }
        }
        writer.write(" /ByteRange [")
        let place = writer.bytes.count
        writer.write(String(repeating: " ", count: Self.rangeLength) + "] /Contents ")
        let start = writer.bytes.count
        writer.write("<" + String(repeating: "0", count: room * 2) + ">")
        contents = start..<writer.bytes.count
        writer.write(" >>")
        writer.end()
        if let field = document.newField {
            writer.begin(PDFReference(number: number + 1, generation: 0))
            // Printed and locked, as PDF/A wants; without a place of no size, and so invisible.
            writer.write(
                "<< /Type /Annot /Subtype /Widget /FT /Sig /T \(Self.string(field.name)) /V \(number) 0 R"
                    + " /Rect [\(field.box?.corners ?? "0 0 0 0")] /F 132 /P \(field.page) R")
            if field.box != nil { writer.write(" /AP << /N \(number + 2) 0 R >>") }
            writer.write(" >>")
            writer.end()
        }
        if let last = document.appearances.last {
            let font = PDFReference(number: last.number + 1, generation: 0)
            let texts = [signer, "\(time[..<3].joined(separator: "-")) \(time[3...].joined(separator: ":")) +00:00"]
            for (number, box) in document.appearances {
                writer.begin(PDFReference(number: number, generation: 0))
                writer.write(SignatureAppearance(texts + (reason.map { [$0] } ?? []), in: box).object(font: font))
                writer.end()
            }
            writer.begin(font)
            writer.write("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
            writer.end()
        }
        writer.write(document.changes)
        writer.writeSection()
        let size = document.base.size
        let total = size + writer.bytes.count
        guard total <= SignableDocument.maximumSize else { throw SignableDocument.tooLarge }
        let (first, second) = (size + contents.lowerBound, size + contents.upperBound)
        byteRange = [0, first, second, total - second]
        let range = Array("0 \(first) \(second) \(total - second)".utf8)
        writer.bytes.replaceSubrange(place..<(place + range.count), with: range)
        bytes = writer.bytes
    }

    /// Three numbers of ten digits behind a zero.
    private static let rangeLength = 1 + 3 * 11

    /// The update with the signature.
    ///
    /// - Throws: `documentNotSignable` when there is no room for it.
    package func filled(with signature: [UInt8]) throws(ProviderError) -> [UInt8] {
        let room = contents.count / 2 - 1
        guard signature.count <= room else {
            throw ProviderError(
                .documentNotSignable,
                "The signature has \(signature.count) bytes, and there is room for \(room). A time stamp may have 16 KiB: "
                    + "use another time-stamp server.")
        }
        var result = bytes
        var index = contents.lowerBound + 1
        for byte in signature {
            for digit in [byte >> 4, byte & 0xf] {
                result[index] = digit < 10 ? 0x30 + digit : 0x61 + digit - 10
                index += 1
            }
        }
        return result
    }

    /// A date in UTC: year, month, day, hour, minute, second, each with all its digits.
    private static func fields(of date: Date) -> [String] {
        var (seconds, parts) = (time_t(date.timeIntervalSince1970), tm())
        gmtime_r(&seconds, &parts)
        let fields = [parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec]
        return ["\(parts.tm_year + 1900)"] + fields.map { ($0 < 10 ? "0" : "") + "\($0)" }
    }

    /// A text string: as it is, or as UTF-16 in hexadecimal.
    private static func string(_ text: String) -> String {
        guard text.utf8.allSatisfy({ (0x20...0x7e).contains($0) }) else {
            return "<FEFF"
                + text.utf16.map { unit in
                    let digits = String(unit, radix: 16, uppercase: true)
                    return String(repeating: "0", count: 4 - digits.count) + digits
                }.joined() + ">"
        }
        return "(" + text.map { "()\\".contains($0) ? "\\\($0)" : "\($0)" }.joined() + ")"
    }
}

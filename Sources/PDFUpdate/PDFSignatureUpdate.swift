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
        var writer = Writer(document)
        let number = document.nextNumber
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
        for change in document.changes {
            writer.begin(change.reference)
            writer.bytes += change.bytes
            writer.end()
        }
        writer.writeSection()
        let total = document.size + writer.bytes.count
        guard total <= SignableDocument.maximumSize else { throw SignableDocument.tooLarge }
        let (first, second) = (document.size + contents.lowerBound, document.size + contents.upperBound)
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

/// Writes objects, and remembers where they are.
private struct Writer {
    typealias Entry = (reference: PDFReference, offset: Int?)

    let document: SignableDocument
    var bytes: [UInt8]
    /// The objects, and the gaps as free entries.
    private var entries: [Entry] = []

    init(_ document: SignableDocument) {
        self.document = document
        bytes = document.needsLineEnd ? [0x0a] : []
        for gap in document.gaps {
            // ISO 32000-1, 7.5.4: in no list of free entries, and never used again.
            entries += gap.map { (PDFReference(number: $0, generation: 65_535), nil) }
        }
    }

    mutating func write(_ text: String) { bytes += text.utf8 }

    mutating func begin(_ reference: PDFReference) {
        entries.append((reference, document.size + bytes.count))
        write("\(reference) obj\n")
    }

    mutating func end() { write("\nendobj\n") }

    /// Writes the cross-reference section, of the kind of the last one, and the trailer.
    mutating func writeSection() {
        let start = document.size + bytes.count
        // The highest is one of the new objects.
        let size = entries.reduce(0) { max($0, $1.reference.number) } + 1
        if document.hasStreams {
            begin(PDFReference(number: size, generation: 0))
            let parts = parts
            let index = parts.map { "\($0.first) \($0.entries.count)" }.joined(separator: " ")
            let data = parts.flatMap(\.entries).flatMap { (entry) -> [UInt8] in
                [entry.offset == nil ? 0 : 1] + Self.bigEndian(entry.offset ?? 0, 5)
                    + Self.bigEndian(entry.reference.generation, 2)
            }
            write("<< /Type /XRef /W [1 5 2] /Index [\(index)] /Length \(data.count)")
            writeTrailer(size: size + 1)
            write("\nstream\n")
            bytes += data
            write("\nendstream")
            end()
        } else {
            write("xref\n")
            for part in parts {
                write("\(part.first) \(part.entries.count)\n")
                for (reference, offset) in part.entries {
                    let kind = offset == nil ? "f" : "n"
                    write("\(Self.digits(offset ?? 0, 10)) \(Self.digits(reference.generation, 5)) \(kind) \n")
                }
            }
            write("trailer\n<<")
            writeTrailer(size: size)
            write("\n")
        }
        write("startxref\n\(start)\n%%EOF\n")
    }

    /// The rest of a trailer's dictionary: what it keeps, as it was.
    private mutating func writeTrailer(size: Int) {
        write(" /Size \(size) /Prev \(document.lastSection)")
        for case (let name, let value?) in document.kept {
            write(" /\(name) ")
            bytes += value
        }
        write(" >>")
    }

    /// The entries in parts with consecutive numbers.
    private var parts: [(first: Int, entries: ArraySlice<Entry>)] {
        let sorted = entries.sorted { $0.reference.number < $1.reference.number }
        let starts = sorted.indices.filter { index in
            index == 0 || sorted[index].reference.number != sorted[index - 1].reference.number + 1
        }
        return zip(starts, starts.dropFirst() + [sorted.count]).map { (sorted[$0].reference.number, sorted[$0..<$1]) }
    }

    private static func digits(_ number: Int, _ count: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: max(0, count - digits.count)) + digits
    }

    private static func bigEndian(_ number: Int, _ count: Int) -> [UInt8] {
        (0..<count).reversed().map { UInt8(truncatingIfNeeded: number >> ($0 * 8)) }
    }
}

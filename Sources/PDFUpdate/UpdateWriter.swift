/// Writes objects, and remembers where they are.
struct UpdateWriter {
    private typealias Entry = (reference: PDFReference, offset: Int?)

    private let base: UpdateBase
    var bytes: [UInt8]
    /// The objects, and the gaps as free entries.
    private var entries: [Entry] = []

    init(_ base: UpdateBase) {
        self.base = base
        bytes = base.needsLineEnd ? [0x0a] : []
        for gap in base.gaps {
            // ISO 32000-1, 7.5.4: in no list of free entries, and never used again.
            entries += gap.map { (PDFReference(number: $0, generation: 65_535), nil) }
        }
    }

    mutating func write(_ text: String) { bytes += text.utf8 }

    mutating func begin(_ reference: PDFReference) {
        entries.append((reference, base.size + bytes.count))
        write("\(reference) obj\n")
    }

    mutating func end() { write("\nendobj\n") }

    /// Writes changed objects.
    mutating func write(_ changes: [(reference: PDFReference, bytes: [UInt8])]) {
        for change in changes {
            begin(change.reference)
            bytes += change.bytes
            end()
        }
    }

    /// Writes the cross-reference section, of the kind of the last one, and the trailer.
    mutating func writeSection() {
        let start = base.size + bytes.count
        // The highest is one of the new objects.
        let size = entries.reduce(0) { max($0, $1.reference.number) } + 1
        if base.hasStreams {
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
        write(" /Size \(size) /Prev \(base.lastSection)")
        for case (let name, let value?) in base.kept {
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

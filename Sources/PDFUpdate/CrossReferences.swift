import CertificateProviding

/// A cross-reference section. Tables stay in the file, where an entry is read when it is needed.
struct CrossReferences {
    /// The most sections, and the most parts of all sections.
    static let maximumSections = 4096, maximumParts = 1 << 17
    /// The largest number of an object (ISO 32000-1, annex C).
    static let maximumNumber = 8_388_607

    enum Entry {
        case free
        case offset(Int, generation: Int)
        /// The number of the object stream, and the place of the object among those in it.
        case inStream(Int, index: Int)
    }

    /// Entries with consecutive numbers.
    struct Part {
        var numbers: Range<Int>
        /// The start of its first entry: in the file, or in `data`.
        var place: Int
        /// The length of an entry.
        var width: Int
    }

    /// The place of the section, as the one after it names it.
    var offset = 0
    /// Of a table: where its trailer begins, and where that ends.
    var tableEnd = 0, end = 0
    let trailer: PDFPlace
    /// In the order of their numbers, and without overlaps.
    let parts: [Part]
    /// The entries of a stream, and the lengths of their three fields.
    var stream: (data: [UInt8], fields: [Int])?
    /// Whether the next section has the entries that are hidden in this table.
    var isHybrid = false

    /// The entry of a number, where there is one.
    func entry(of number: Int, of reader: PDFReader) throws(ProviderError) -> Entry? {
        var (low, high) = (0, parts.count)
        while low < high {
            let middle = (low + high) / 2
            if parts[middle].numbers.upperBound <= number { low = middle + 1 } else { high = middle }
        }
        guard low < parts.count, parts[low].numbers.contains(number) else { return nil }
        let place = parts[low].place + (number - parts[low].numbers.lowerBound) * parts[low].width
        guard let stream else {
            let start = reader.start + place
            guard let line = TableEntry(try reader.source.bytes(start..<(start + TableEntry.length))) else {
                throw PDFReader.damaged("the entry of object \(number) in the cross-reference table has another form")
            }
            return line.isInUse ? .offset(line.first, generation: line.second) : .free
        }
        var index = place
        let fields = stream.fields.map { width in
            defer { index += width }
            // Seven bytes are more than any file has.
            return stream.data[index..<(index + width)].reduce(0) { $0 << 8 & 0xff_ffff_ffff_ffff | Int($1) }
        }
        switch stream.fields[0] == 0 ? 1 : fields[0] {
        case 1: return .offset(fields[1], generation: fields[2])
        case 2: return .inStream(fields[1], index: fields[2])
        default: return .free
        }
    }
}

/// An entry of a table without its line end: `0000000017 00000 n`.
private struct TableEntry {
    static let length = 18
    var first, second: Int
    var isInUse: Bool

    init?(_ bytes: [UInt8]) {
        guard bytes.count == Self.length, bytes[10] == 0x20, bytes[16] == 0x20,
            let first = PDFScanner.decimal(bytes[..<10]), let second = PDFScanner.decimal(bytes[11..<16]),
            bytes[17] == UInt8(ascii: "n") || bytes[17] == UInt8(ascii: "f")
        else { return nil }
        (self.first, self.second, isInUse) = (first, second, bytes[17] == UInt8(ascii: "n"))
    }
}

extension PDFReader {
    /// The start of the last section.
    func startOfSections() throws(ProviderError) -> Int {
        // As far as readers look.
        let end = try source.bytes((source.count - 1024)..<source.count)
        let word = Array("startxref".utf8)
        guard let index = end.indices.last(where: { end[$0...].starts(with: word) }) else {
            throw Self.damaged("its last 1,024 bytes have no startxref")
        }
        var scanner = PDFScanner(end, isWhole: true)
        scanner.index = index + word.count
        guard let offset = try? scanner.number() else { throw Self.damaged("startxref is not followed by a number") }
        return offset
    }

    /// Reads all sections, the newest first.
    ///
    /// - Throws: `documentNotSignable` for an encrypted document, whatever else may be wrong with it.
    mutating func readSections() throws(ProviderError) {
        var (next, seen): (Int?, Set<Int>) = (try startOfSections(), [])
        while let offset = next {
            guard seen.insert(offset).inserted else { throw Self.damaged("its cross-reference sections are a loop") }
            guard sections.count < CrossReferences.maximumSections else {
                throw Self.damaged("it has more than \(CrossReferences.maximumSections) cross-reference sections")
            }
            var section = try self.section(at: offset)
            section.offset = offset
            var hidden: CrossReferences?
            if section.stream == nil, let place = try Self.offset("XRefStm", of: section.trailer) {
                hidden = try self.section(at: place)
                guard hidden?.stream != nil else { throw Self.damaged("/XRefStm \(place) is not a stream") }
                section.isHybrid = true
            }
            next = try Self.offset("Prev", of: section.trailer)
            sections += [section] + (hidden.map { [$0] } ?? [])
            let parts = sections.reduce(0) { $0 + $1.parts.count }
            guard parts <= CrossReferences.maximumParts else {
                throw Self.damaged("its cross-reference sections have more than \(CrossReferences.maximumParts) parts")
            }
        }
    }

    private mutating func section(at offset: Int) throws(ProviderError) -> CrossReferences {
        let keyword = try scan(at: offset) { (scanner) throws(PDFScanFailure) in
            try scanner.take("xref") ? scanner.index : nil
        }
        guard let keyword else { return try stream(at: offset) }
        return try table(at: offset + keyword)
    }

    /// An offset in a trailer, which must not be indirect: nothing can be looked up yet.
    private static func offset(_ name: String, of trailer: PDFPlace) throws(ProviderError) -> Int? {
        guard let value = try directEntry(name, of: trailer) else { return nil }
        guard case .integer(let offset) = value.content else { throw damaged("/\(name) of a trailer is not a number") }
        return offset
    }

    private static func refuseEncrypted(_ trailer: PDFPlace) throws(ProviderError) {
        guard let value = try directEntry("Encrypt", of: trailer) else { return }
        if case .null = value.content { return }
        throw ProviderError(
            .documentNotSignable,
            "The PDF is encrypted. Sign it before it is encrypted, or decrypt it first, for example with "
                + "qpdf --decrypt IN OUT.")
    }

    private mutating func table(at offset: Int) throws(ProviderError) -> CrossReferences {
        var (index, parts, tableEnd): (Int, [CrossReferences.Part], Int) = (offset, [], offset)
        while true {
            tableEnd = index
            let (part, end) = try scan(at: index) { (scanner) throws(PDFScanFailure) in
                if try scanner.take("trailer") { return (nil as (Int, Int)?, scanner.index) }
                guard let first = try scanner.number(), let count = try scanner.number() else {
                    throw scanner.malformed("a cross-reference table has neither entries nor trailer")
                }
                try scanner.skipSpace()
                return ((first, count), scanner.index)
            }
            index += end
            guard let (first, count) = part else { break }
            guard count > 0 else { continue }
            guard first <= CrossReferences.maximumNumber, count <= CrossReferences.maximumNumber else {
                throw Self.damaged("a cross-reference table has entries above \(CrossReferences.maximumNumber)")
            }
            let width = try self.width(ofEntriesAt: index)
            parts.append(.init(numbers: first..<(first + count), place: index, width: width))
            guard parts.count <= CrossReferences.maximumParts else {
                throw Self.damaged("a cross-reference table has more than \(CrossReferences.maximumParts) parts")
            }
            index += width * (count - 1)
            let last = try source.bytes((start + index)..<(start + index + TableEntry.length))
            guard TableEntry(last) != nil else {
                throw Self.damaged("the entries of a cross-reference table differ in length, at byte \(start + index)")
            }
            index += TableEntry.length
        }
        let trailer = try scan(at: index) { (scanner) throws(PDFScanFailure) in
            let value = try scanner.value()
            return PDFObject(
                reference: .init(number: 0, generation: 0), bytes: scanner.bytes[value.range], value: value)
        }
        try Self.refuseEncrypted(PDFPlace(trailer))
        return CrossReferences(
            tableEnd: tableEnd, end: index + trailer.value.range.upperBound, trailer: PDFPlace(trailer),
            parts: try Self.sorted(parts))
    }

    /// The length of the entries: 20 bytes, and one more or less in files that other readers read too.
    private func width(ofEntriesAt offset: Int) throws(ProviderError) -> Int {
        let bytes = try source.bytes((start + offset)..<(start + offset + 32))
        guard bytes.count >= TableEntry.length, TableEntry(Array(bytes[..<TableEntry.length])) != nil else {
            throw Self.damaged("a cross-reference table has no entry at byte \(start + offset)")
        }
        let spaces = bytes[TableEntry.length...].prefix(while: PDFScanner.isSpace).count
        return TableEntry.length + min(max(spaces, 1), 3)
    }

    private mutating func stream(at offset: Int) throws(ProviderError) -> CrossReferences {
        let object = try object(at: offset, nil)
        let trailer = PDFPlace(object)
        guard try entry("Type", of: trailer, as: .name)?.value == "XRef" else {
            throw Self.damaged("there is no cross-reference section at byte \(start + offset)")
        }
        try Self.refuseEncrypted(trailer)
        let fields = try integers("W", of: trailer) ?? []
        guard fields.count == 3, fields.allSatisfy({ (0...8).contains($0) }), fields[1] > 0 else {
            throw Self.damaged(object, "/W is not what a cross-reference stream has")
        }
        let size = try entry("Size", of: trailer, as: .integer)?.value
        guard let index = try integers("Index", of: trailer) ?? size.map({ [0, $0] }), index.count.isMultiple(of: 2),
            index.count / 2 <= CrossReferences.maximumParts
        else { throw Self.damaged(object, "/Size is missing, or /Index does not consist of pairs") }
        var (parts, place): ([CrossReferences.Part], Int) = ([], 0)
        let width = fields.reduce(0, +)
        for pair in stride(from: 0, to: index.count, by: 2) where index[pair + 1] != 0 {
            let (first, count) = (index[pair], index[pair + 1])
            guard (0...CrossReferences.maximumNumber).contains(first),
                (0...CrossReferences.maximumNumber).contains(count)
            else { throw Self.damaged(object, "it has entries above \(CrossReferences.maximumNumber)") }
            parts.append(.init(numbers: first..<(first + count), place: place, width: width))
            place += width * count
        }
        let data = try decodedStream(of: object)
        guard data.count >= place else { throw Self.damaged(object, "its stream has fewer entries than it says") }
        let kinds = fields[0] == 0 ? [] : stride(from: 0, to: place, by: width).map { data[$0..<($0 + fields[0])] }
        // A number of another kind stands for null, and there is none yet: some readers take it for damage.
        guard kinds.allSatisfy({ $0.dropLast().allSatisfy { $0 == 0 } && ($0.last ?? 0) <= 2 }) else {
            throw Self.damaged(object, "it has an entry of an unknown type")
        }
        return CrossReferences(trailer: trailer, parts: try Self.sorted(parts), stream: (data, fields))
    }

    mutating func integers(_ name: String, of place: PDFPlace) throws(ProviderError) -> [Int]? {
        try entry(name, of: place, as: .array)?.value.map { (value) throws(ProviderError) in
            guard case .integer(let number) = value.content else {
                throw Self.damaged(place.object, "/\(name) does not consist of integers")
            }
            return number
        }
    }

    private static func sorted(_ parts: [CrossReferences.Part]) throws(ProviderError) -> [CrossReferences
        .Part]
    {
        let sorted = parts.sorted { $0.numbers.lowerBound < $1.numbers.lowerBound }
        for (part, next) in zip(sorted, sorted.dropFirst()) where part.numbers.overlaps(next.numbers) {
            throw damaged("a cross-reference section has two entries of object \(next.numbers.lowerBound)")
        }
        return sorted
    }
}

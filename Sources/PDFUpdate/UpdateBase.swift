import CertificateProviding

/// The parts of a document that every update goes on from.
struct UpdateBase {
    let size: Int
    /// Whether the update must begin with a line end.
    let needsLineEnd: Bool
    /// The last cross-reference section: its kind is that of the next.
    let lastSection: Int
    let hasStreams: Bool
    /// The entries of its trailer that the next one keeps, as bytes.
    let kept: [(name: String, value: ArraySlice<UInt8>?)]
    let catalog: PDFPlace
    /// The first number that is not in use.
    let nextNumber: Int
    /// Numbers below it without an entry, which get free ones.
    var gaps: [Range<Int>]

    /// Reads the sections and the catalog.
    ///
    /// - Throws: `documentNotSignable` for an encrypted document; `malformedData`.
    init(_ reader: inout PDFReader) throws(ProviderError) {
        size = reader.source.count
        lastSection = try reader.startOfSections()
        try reader.readSections()
        try reader.checkHeader()
        let trailer = reader.sections[0].trailer
        kept = try ["Root", "Info", "ID"].map { (name) throws(ProviderError) in
            (name, try PDFReader.directEntry(name, of: trailer).map { trailer.object.bytes[$0.range] })
        }
        hasStreams = reader.sections[0].stream != nil
        needsLineEnd = try reader.source.bytes((size - 1)..<size) != [0x0a]
        catalog = try reader.catalog()
        let numbers = try Numbers(of: reader, trailer)
        (nextNumber, gaps) = (numbers.next, numbers.gaps)
    }
}

/// The numbers of a document's objects.
private struct Numbers {
    /// The most numbers that get free entries.
    static let maximumGaps = 1 << 20

    var next: Int
    var gaps: [Range<Int>] = []

    init(of reader: PDFReader, _ trailer: PDFPlace) throws(ProviderError) {
        guard case .integer(let size)? = try PDFReader.directEntry("Size", of: trailer)?.content, size > 0,
            size <= CrossReferences.maximumNumber
        else { throw PDFReader.damaged("/Size in its trailer is missing or out of range") }
        let used = reader.sections.flatMap { $0.parts.map(\.numbers) }.sorted { $0.lowerBound < $1.lowerBound }
        // Zero is the head of the list of free entries.
        next = 1
        for range in used {
            if range.lowerBound > next { gaps.append(next..<range.lowerBound) }
            next = max(next, range.upperBound)
        }
        if next < size { gaps.append(next..<size) }
        next = max(next, size)
        guard next <= CrossReferences.maximumNumber, gaps.reduce(0, { $0 + $1.count }) <= Self.maximumGaps else {
            throw PDFReader.damaged("it has no entries for most of its numbers up to \(next)")
        }
    }
}

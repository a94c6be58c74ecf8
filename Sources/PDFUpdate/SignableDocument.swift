package import CertificateProviding

/// The parts of a signature beside the cryptography.
package struct PDFSignatureRequest: Sendable {
    /// The full name of an existing empty signature field; `nil` for a new field.
    package var field: String?
    /// The place of a new field as it is shown, from the lower left corner of the page, whose number is from 1; `nil` for an invisible field.
    package var place: (page: Int, rectangle: PDFRectangle)?
    package var reason: String?
    package var location: String?
    /// Whether it will have a time stamp; a field may require one.
    package var hasTimeStamp: Bool

    package init(
        field: String? = nil, place: (page: Int, rectangle: PDFRectangle)? = nil, reason: String? = nil,
        location: String? = nil, hasTimeStamp: Bool = false
    ) {
        self.place = place
        (self.field, self.reason, self.location, self.hasTimeStamp) = (field, reason, location, hasTimeStamp)
    }
}

/// A PDF that can get a signature (ISO 32000-2, EN 319 142-1), and what the update for that will change.
///
/// Read are the cross-reference sections, the catalog, the pages down to that of the field, the form, and what changes. Each changed
/// object is its old bytes with one entry changed.
package struct SignableDocument: Sendable {
    /// The last byte has an offset of ten digits.
    package static let maximumSize = 9_999_999_999

    let size: Int
    let request: PDFSignatureRequest
    /// Whether the update must begin with a line end.
    let needsLineEnd: Bool
    /// The last cross-reference section: its kind is that of the next.
    let lastSection: Int
    let hasStreams: Bool
    /// The entries of its trailer that the next one keeps, as bytes.
    let kept: [(name: String, value: ArraySlice<UInt8>?)]
    /// The first number that is not in use.
    let nextNumber: Int
    /// Numbers below it without an entry, which get free ones.
    let gaps: [Range<Int>]
    /// The name of a new field, the page that it is on, and its place if it is visible; `nil` for an existing field.
    let newField: (name: String, page: PDFReference, box: SignatureBox?)?
    /// The appearances, each with the number of its object. The next number is that of the font.
    let appearances: [(number: Int, box: SignatureBox)]
    /// The changed objects.
    let changes: [(reference: PDFReference, bytes: [UInt8])]
    /// How many pages the document says that it has (`/Count`); `nil` if it does not say so in a usual way. Nothing counts them.
    package let claimedPages: Int?

    /// Reads what the update needs, and decides whether the document can be signed. No key is needed for that.
    ///
    /// - Throws: `documentNotSignable` with the reason; `malformedData` for what another reader would have to repair.
    package init(_ source: PDFSource, _ request: PDFSignatureRequest) throws(ProviderError) {
        guard source.count <= Self.maximumSize else { throw Self.tooLarge }
        try Self.check(request)
        var reader = try PDFReader(source)
        (size, self.request) = (source.count, request)
        lastSection = try reader.startOfSections()
        try reader.readSections()
        try reader.checkHeader()
        let trailer = reader.sections[0].trailer
        kept = try ["Root", "Info", "ID"].map { (name) throws(ProviderError) in
            (name, try PDFReader.directEntry(name, of: trailer).map { trailer.object.bytes[$0.range] })
        }
        hasStreams = reader.sections[0].stream != nil
        needsLineEnd = try source.bytes((source.count - 1)..<source.count) != [0x0a]

        guard case .reference(let root)? = try PDFReader.directEntry("Root", of: trailer)?.content,
            let catalog = try reader.object(root).map({ PDFPlace($0) })
        else { throw PDFReader.damaged("its trailer names no catalog (/Root)") }
        let form = try reader.entry("AcroForm", of: catalog, as: .dictionary)?.place
        if let form, try reader.entry("NeedsRendering", of: catalog, as: .boolean)?.value == true,
            try PDFReader.directEntry("XFA", of: form) != nil
        {
            throw ProviderError(
                .documentNotSignable,
                "The PDF is a dynamic XFA form, whose pages are made by the program that shows it. Print it to another PDF "
                    + "and sign that.")
        }
        let fields = try FormFields(form, of: catalog, wanted: request.field, &reader)
        if let refusal = fields.damage ?? fields.closure { throw refusal }

        let numbers = try Numbers(of: reader, trailer)
        nextNumber = numbers.next
        gaps = fields.isSigned ? [] : numbers.gaps

        var splices = Splices()
        let flags = try form.flatMap { (form) throws(ProviderError) in
            try reader.entry("SigFlags", of: form, as: .integer)?.value
        }
        let signature = Self.bytes(of: PDFReference(number: numbers.next, generation: 0))
        if let name = request.field {
            let field = try fields.field(name, for: request, &reader)
            guard field.value.range == field.object.value.range else {
                throw PDFReader.damaged(field.object, "the field \(name) is not an object of its own")
            }
            try splices.set("V", to: signature, of: field)
            newField = nil
            let widgets = try reader.visibleWidgets(of: field, hasKids: !fields.isSigned, catalog)
            appearances = try widgets.enumerated().map { (index, one) throws(ProviderError) in
                let number = numbers.next + 1 + index
                try splices.set("AP", to: Array("<< /N \(number) 0 R >>".utf8), of: one.widget)
                // Without flags it would not be printed.
                if try PDFReader.directEntry("F", of: one.widget) == nil {
                    try splices.set("F", to: Array("132".utf8), of: one.widget)
                }
                return (number, one.box)
            }
        } else {
            let page = try PageTree.page(request.place?.page ?? 1, of: catalog, &reader)
            let box = try request.place.map { (place) throws(ProviderError) in
                try SignatureBox(place.rectangle, on: page, &reader)
            }
            let field = Self.bytes(of: PDFReference(number: numbers.next + 1, generation: 0))
            try splices.append(field, to: "Annots", of: PDFPlace(page.object), &reader)
            if let form { try splices.append(field, to: "Fields", of: form, &reader) }
            newField = (fields.freeName(), page.object.reference, box)
            appearances = box.map { [(numbers.next + 2, $0)] } ?? []
            if form == nil {
                try splices.set(
                    "AcroForm", to: Array("<< /Fields [".utf8) + field + Array("] /SigFlags 3 >>".utf8), of: catalog)
            }
        }
        if let form, flags ?? 0 & 3 != 3 {
            try splices.set("SigFlags", to: Array("\((flags ?? 0) | 3)".utf8), of: form)
        }
        changes = splices.changedObjects
        claimedPages = try? reader.claimedPages(of: catalog)
    }

    private static func check(_ request: PDFSignatureRequest) throws(ProviderError) {
        guard let place = request.place else { return }
        guard request.field == nil else {
            throw ProviderError(
                .configurationInvalid,
                "A visible signature has a field that exists, or a place for a new one. Name one of the two.")
        }
        let box = SignatureBox(place.rectangle, turns: 0)
        guard box.isLargeEnough else {
            throw ProviderError(
                .configurationInvalid,
                "The rectangle of the visible signature is too small to be read. It must be at least "
                    + "\(SignatureBox.minimum.width.pdfText) points wide and \(SignatureBox.minimum.height.pdfText) high."
            )
        }
    }

    static var tooLarge: ProviderError {
        ProviderError(
            .documentNotSignable,
            "The PDF has more than \(maximumSize) bytes with its signature: its offsets would have more than ten digits. "
                + "Sign it with certprov sign cms.")
    }

    /// A reference as it is written.
    static func bytes(of reference: PDFReference) -> [UInt8] { Array("\(reference) R".utf8) }
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

/// Changes of objects, each of one entry.
private struct Splices {
    private var objects: [PDFReference: PDFObject] = [:]
    private var splices: [PDFReference: [(range: Range<Int>, text: [UInt8])]] = [:]

    private mutating func add(_ text: String, _ more: [UInt8], at range: Range<Int>, of object: PDFObject) {
        let text = Array(text.utf8) + more
        objects[object.reference] = object
        // One array may be that of the annotations and that of the fields.
        if splices[object.reference, default: []].contains(where: { $0.range == range && $0.text == text }) { return }
        splices[object.reference, default: []].append((range, text))
    }

    /// Gives an entry a value, which replaces another one.
    mutating func set(_ name: String, to text: [UInt8], of place: PDFPlace) throws(ProviderError) {
        guard place.object.stream == nil else { throw PDFReader.damaged(place.object, "it has a stream") }
        if let old = try PDFReader.directEntry(name, of: place) {
            let before = place.object.bytes[..<old.range.lowerBound].last ?? 0
            add(PDFScanner.isSpace(before) ? "" : " ", text, at: old.range, of: place.object)
        } else {
            let end = place.value.range.upperBound - 2
            add(" /\(name) ", text, at: end..<end, of: place.object)
        }
    }

    /// Appends a reference to an array, which may be an object of its own, or begins one.
    mutating func append(
        _ reference: [UInt8], to name: String, of place: PDFPlace, _ reader: inout PDFReader
    ) throws(ProviderError) {
        guard let array = try reader.entry(name, of: place, as: .array)?.place else {
            return try set(name, to: Array("[".utf8) + reference + Array("]".utf8), of: place)
        }
        guard array.object.stream == nil else { throw PDFReader.damaged(array.object, "it has a stream") }
        let end = array.value.range.upperBound - 1
        add(" ", reference, at: end..<end, of: array.object)
    }

    var changedObjects: [(reference: PDFReference, bytes: [UInt8])] {
        objects.values.sorted { $0.reference.number < $1.reference.number }.map { object in
            var (bytes, end): ([UInt8], Int) = ([], object.bytes.startIndex)
            // At one place, in the order of the changes: a dictionary may get two entries.
            for splice in (splices[object.reference] ?? []).sorted(by: { $0.range.lowerBound < $1.range.lowerBound }) {
                bytes += object.bytes[end..<splice.range.lowerBound] + splice.text
                end = splice.range.upperBound
            }
            return (object.reference, bytes + object.bytes[end...])
        }
    }
}

extension PDFReader {
    /// Refuses what only some readers find.
    func checkHeader() throws(ProviderError) {
        guard start == 0 else { throw Self.damaged("\(start) bytes stand before its header") }
        let version = try source.bytes(5..<8)
        guard version.count == 3, version[1] == UInt8(ascii: "."), PDFScanner.decimal([version[0], version[2]]) != nil
        else {
            throw Self.damaged("its header has no version")
        }
    }

    /// `/Count` of the page tree's root.
    mutating func claimedPages(of catalog: PDFPlace) throws(ProviderError) -> Int? {
        guard case .reference(let root)? = try PDFReader.directEntry("Pages", of: catalog)?.content,
            let node = try object(root), let count = try entry("Count", of: PDFPlace(node), as: .integer)?.value,
            count > 0
        else { return nil }
        return count
    }
}

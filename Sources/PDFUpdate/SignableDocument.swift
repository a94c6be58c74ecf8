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

    let base: UpdateBase
    let request: PDFSignatureRequest
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
        self.request = request
        var base = try UpdateBase(&reader)
        let catalog = base.catalog
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

        // A signature that is there stays as it was for readers that look at differences.
        if fields.isSigned { base.gaps = [] }
        self.base = base
        let next = base.nextNumber

        var splices = Splices()
        let flags = try form.flatMap { (form) throws(ProviderError) in
            try reader.entry("SigFlags", of: form, as: .integer)?.value
        }
        let signature = Self.bytes(of: PDFReference(number: next, generation: 0))
        if let name = request.field {
            let field = try fields.field(name, for: request, &reader)
            guard field.value.range == field.object.value.range else {
                throw PDFReader.damaged(field.object, "the field \(name) is not an object of its own")
            }
            try splices.set("V", to: signature, of: field)
            newField = nil
            let widgets = try reader.visibleWidgets(of: field, hasKids: !fields.isSigned, catalog)
            appearances = try widgets.enumerated().map { (index, one) throws(ProviderError) in
                let number = next + 1 + index
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
            let field = Self.bytes(of: PDFReference(number: next + 1, generation: 0))
            try splices.append(field, to: "Annots", of: PDFPlace(page.object), &reader)
            if let form { try splices.append(field, to: "Fields", of: form, &reader) }
            newField = (fields.freeName(), page.object.reference, box)
            appearances = box.map { [(next + 2, $0)] } ?? []
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

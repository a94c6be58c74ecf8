import CertificateProviding

/// A page, and the entries that pages inherit: its own, or those of the nearest node above it.
struct PDFPage {
    static let inheritable = ["CropBox", "MediaBox", "Rotate"]

    let object: PDFObject
    /// From 1.
    let number: Int
    let inherited: [String: PDFPlace]
}

/// The pages of a document, depth first, each read when it is asked for.
struct PageTree {
    private var waiting: [(value: PDFValue, holder: PDFObject, inherited: [String: PDFPlace])]
    private var seen: Set<PDFReference> = []
    private var count = 0

    init(of catalog: PDFPlace) throws(ProviderError) {
        guard let root = try PDFReader.directEntry("Pages", of: catalog) else {
            throw PDFReader.damaged(catalog.object, "the catalog has no /Pages")
        }
        waiting = [(root, catalog.object, [:])]
    }

    /// The next page; `nil` behind the last one.
    mutating func next(_ reader: inout PDFReader) throws(ProviderError) -> PDFPage? {
        while let (value, holder, above) = waiting.popLast() {
            var inherited = above
            guard case .reference(let reference) = value.content else {
                throw PDFReader.damaged(holder, "a page is not an object of its own")
            }
            guard seen.insert(reference).inserted else {
                throw PDFReader.damaged(holder, "the page tree has a loop")
            }
            guard let node = try reader.object(reference) else {
                throw PDFReader.damaged(holder, "the page \(reference) is missing")
            }
            if case .dictionary(let entries) = node.value.content {
                for (name, value) in entries where PDFPage.inheritable.contains(name) {
                    inherited[name] = PDFPlace(node, value)
                }
            }
            if let kids = try reader.entry("Kids", of: PDFPlace(node), as: .array) {
                waiting += kids.value.reversed().map { ($0, kids.place.object, inherited) }
                guard waiting.count <= FormFields.maximumCount else {
                    throw PDFReader.damaged(node, "it has too many pages")
                }
                continue
            }
            // Readers take a node without a type for a page. Of another type, some repair it.
            guard seen.count > 1, try reader.entry("Type", of: PDFPlace(node), as: .name)?.value ?? "Page" == "Page"
            else {
                throw PDFReader.damaged(node, "a node of the page tree has no /Kids, and is not a page")
            }
            count += 1
            return PDFPage(object: node, number: count, inherited: inherited)
        }
        return nil
    }

    /// The page with a number.
    static func page(
        _ number: Int, of catalog: PDFPlace, _ reader: inout PDFReader
    ) throws(ProviderError) -> PDFPage {
        var tree = try PageTree(of: catalog)
        while let page = try tree.next(&reader) {
            if page.number == number { return page }
        }
        guard tree.count > 0 else {
            throw ProviderError(
                .documentNotSignable,
                "The PDF has no page, and a signature needs one for its field. Sign it with certprov sign cms.")
        }
        throw ProviderError(
            .documentNotSignable,
            "The PDF has no page \(number) for a visible signature: it has \(tree.count). Name another page.")
    }
}

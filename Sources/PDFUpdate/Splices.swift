import CertificateProviding

/// Changes of objects, each of one entry.
struct Splices {
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

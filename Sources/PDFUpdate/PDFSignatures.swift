package import CertificateProviding

/// A signature in a field of a document (ISO 32000-2, 12.8). Nothing is verified here.
package struct PDFFieldSignature: Sendable {
    /// The full name of its field.
    package let field: String
    /// `/SubFilter`, such as `ETSI.CAdES.detached`; empty without one.
    package let subFilter: String
    /// `/Name`, `/Reason` and `/Location`: what the signer says, covered by the signature.
    package let name, reason, location: String?
    /// `/M` as it stands there: the time that the signer claims.
    package let claimedTime: String?
    /// The signed bytes of the file: the revision that ends with the signature, but for the value of `/Contents`; empty if the signature
    /// does not say so in the only way that is accepted, which ``problem`` explains.
    package let ranges: [Range<Int>]
    /// Why the ranges are not accepted, as a clause for a message.
    package let problem: String?
    /// The value of `/Contents` without the zeros behind it.
    package let contents: [UInt8]
    /// The revisions that came after it; `nil` where the ranges are not accepted.
    package fileprivate(set) var later: PDFLaterRevisions?
    /// The object that has it.
    fileprivate let object: PDFReference

    /// Whether it is a time stamp of the document (EN 319 142-1, 5.4.3).
    package var isTimeStamp: Bool { subFilter == "ETSI.RFC3161" }
    /// The number of bytes of the revision that it signs.
    package var end: Int { ranges.last?.upperBound ?? 0 }
}

/// All signatures of a document, the earliest first. There is no other reader of them in the project.
///
/// Found through the form's fields, as readers of PDF find them. The ranges of a signature must be the file from its start with one gap, and
/// the gap the value of `/Contents` of the same dictionary: else the shown document could differ from the signed one.
package struct PDFSignatures: Sendable {
    package private(set) var signatures: [PDFFieldSignature]
    private let source: PDFSource
    /// The size of the file.
    package let size: Int
    /// Whether the document has scripts (`/JavaScript` in its names, or an action when it opens).
    package let hasScripts: Bool
    /// The certificates in the document security store (ISO 32000-2, 12.8.4.3), perhaps DER. None that cannot be read.
    package let certificates: [[UInt8]]

    /// Reads a document. Blocks; takes time linear in the size of the file, for each signature.
    ///
    /// - Throws: `malformedData` for what another reader would have to repair; `documentNotSignable` for an encrypted document, which cannot
    ///   be read here.
    package init(_ source: PDFSource) throws(ProviderError) {
        var reader = try PDFReader(source)
        try reader.readSections()
        let catalog = try reader.catalog()
        let form = try reader.entry("AcroForm", of: catalog, as: .dictionary)?.place
        let fields = try FormFields(form, of: catalog, wanted: nil, &reader)
        guard fields.signatures.count <= Self.maximumCount else {
            throw PDFReader.damaged("it has more than \(Self.maximumCount) signatures")
        }
        var found: [PDFFieldSignature] = []
        for (name, value) in fields.signatures {
            found.append(try Self.signature(of: name, value, source, &reader))
        }
        signatures = found.sorted { $0.end < $1.end }
        (size, self.source) = (source.count, source)
        hasScripts = try Self.hasScripts(catalog, &reader)
        certificates = (try? Self.certificates(catalog, &reader)) ?? []
        var later: [Int: PDFLaterRevisions] = [:]
        let ends = Set(found.map(\.end)).subtracting([0]).sorted(by: >)
        var (sum, next) = (PDFLaterRevisions(), size)
        for end in ends {
            sum.add(try step(from: end, to: next))
            (later[end], next) = (sum, end)
        }
        for index in signatures.indices { signatures[index].later = later[signatures[index].end] }
    }

    /// Compares the document with an earlier revision, by those of its signatures. As
    /// ``PDFFieldSignature/later`` for any end.
    package func later(after end: Int) throws(ProviderError) -> PDFLaterRevisions {
        guard let next = signatures.first(where: { $0.end > end }) else { return try step(from: end, to: size) }
        var sum = next.later ?? PDFLaterRevisions()
        sum.add(try step(from: end, to: next.end))
        return sum
    }

    private func step(from end: Int, to next: Int) throws(ProviderError) -> PDFLaterRevisions {
        let new = signatures.filter { $0.problem == nil && $0.end > end && $0.end <= next }
        return try PDFLaterRevisions(
            after: end, of: source.prefix(next), signatures: Set(new.map(\.object)))
    }

    /// Each is compared with the one before it.
    private static let maximumCount = 128
    private static let maximumCertificates = 256

    private static func certificates(
        _ catalog: PDFPlace, _ reader: inout PDFReader
    ) throws(ProviderError) -> [[UInt8]] {
        guard let store = try reader.entry("DSS", of: catalog, as: .dictionary)?.place,
            let list = try reader.entry("Certs", of: store, as: .array)
        else { return [] }
        var certificates: [[UInt8]] = []
        for value in list.value.prefix(maximumCertificates) {
            guard let stream = try reader.resolve(value, in: list.place.object)?.object else { continue }
            certificates.append(try reader.decodedStream(of: stream))
        }
        return certificates
    }

    private static func hasScripts(_ catalog: PDFPlace, _ reader: inout PDFReader) throws(ProviderError) -> Bool {
        if let names = try reader.entry("Names", of: catalog, as: .dictionary)?.place,
            try PDFReader.directEntry("JavaScript", of: names) != nil
        {
            return true
        }
        if try PDFReader.directEntry("AA", of: catalog) != nil { return true }
        guard let direct = try PDFReader.directEntry("OpenAction", of: catalog),
            let action = try reader.resolve(direct, in: catalog.object), case .dictionary = action.value.content
        else { return false }
        return try reader.entry("S", of: action, as: .name)?.value != "GoTo"
    }

    private static func signature(
        of field: String, _ value: PDFPlace, _ source: PDFSource, _ reader: inout PDFReader
    ) throws(ProviderError) -> PDFFieldSignature {
        func text(_ name: String) throws(ProviderError) -> String? {
            try reader.entry(name, of: value, as: .string).map { FormFields.text($0.value) }
        }
        let subFilter = try reader.entry("SubFilter", of: value, as: .name)?.value ?? ""
        let contents = try reader.entry("Contents", of: value, as: .string)
        let range = try reader.integers("ByteRange", of: value) ?? []
        var problem = Self.problem(of: range, source.count)
        if problem == nil, let contents {
            // The string's place in the file; an object in a stream has no such place.
            let isOwn: Bool
            if contents.place.object.reference == value.object.reference,
                case .offset(let offset, _) = try reader.entry(of: value.object.reference.number)
            {
                let place = contents.place.value.range
                isOwn =
                    reader.start + offset + place.lowerBound == range[1]
                    && reader.start + offset + place.upperBound == range[2]
            } else {
                isOwn = false
            }
            if !isOwn { problem = "what its /ByteRange leaves out is not its own /Contents" }
        }
        if contents == nil { problem = problem ?? "it has no /Contents" }
        let bytes = contents?.value ?? []
        let size = BERSize.ofSequence(bytes)
        if problem == nil, !(size.map { bytes[$0...].allSatisfy { $0 == 0 } } ?? false) {
            problem = "its /Contents is not one ASN.1 value with zeros behind it"
        }
        let ranges = problem == nil ? [0..<range[1], range[2]..<(range[2] + range[3])] : []
        return PDFFieldSignature(
            field: field, subFilter: subFilter, name: try text("Name"), reason: try text("Reason"),
            location: try text("Location"), claimedTime: try text("M"), ranges: ranges, problem: problem,
            contents: Array(bytes.prefix(size ?? 0)), later: nil, object: value.object.reference)
    }

    private static func problem(of range: [Int], _ size: Int) -> String? {
        guard range.count == 4, range[0] == 0 else {
            return "its /ByteRange is not the file from its start with one gap"
        }
        guard range[1] > 0, range[2] > range[1], range[2] <= size, range[3] >= 0, range[3] <= size - range[2] else {
            return "its /ByteRange is not inside the file"
        }
        return nil
    }
}

/// The size of a value by its headers (X.690, section 8.1).
enum BERSize {
    private static let maximumDepth = 64

    /// The size of the SEQUENCE that bytes begin with; `nil` if they do not have it whole.
    static func ofSequence(_ bytes: [UInt8]) -> Int? { bytes.first == 0x30 ? end(of: bytes, at: 0, depth: 0) : nil }

    private static func end(of bytes: [UInt8], at start: Int, depth: Int) -> Int? {
        guard depth < maximumDepth, start <= bytes.count - 2 else { return nil }
        // Tags above 30 have more bytes.
        var place = start + 1
        if bytes[start] & 0x1f == 0x1f {
            while place < bytes.count, bytes[place] & 0x80 != 0 { place += 1 }
            place += 1
        }
        guard place < bytes.count else { return nil }
        let first = Int(bytes[place])
        place += 1
        if first == 0x80 {
            // Of indefinite length: values until two zeros.
            while place <= bytes.count - 2 {
                if bytes[place] == 0, bytes[place + 1] == 0 { return place + 2 }
                guard let next = end(of: bytes, at: place, depth: depth + 1) else { return nil }
                place = next
            }
            return nil
        }
        var length = first
        if first > 0x80 {
            let count = first & 0x7f
            guard count <= 4, count <= bytes.count - place else { return nil }
            length = bytes[place..<(place + count)].reduce(0) { $0 << 8 | Int($1) }
            place += count
        }
        return length <= bytes.count - place ? place + length : nil
    }
}

extension PDFReader {
    /// The catalog that the newest trailer names.
    mutating func catalog() throws(ProviderError) -> PDFPlace {
        guard case .reference(let root)? = try PDFReader.directEntry("Root", of: sections[0].trailer)?.content,
            let catalog = try object(root)
        else { throw Self.damaged("its trailer names no catalog (/Root)") }
        return PDFPlace(catalog)
    }
}

import CertificateProviding

/// The layout of later revisions: whole objects, each at its entry, a cross-reference section, a trailer, and nothing else.
///
/// A reader that finds something else may repair the file: it then takes the last object of a number wherever it stands, and shows another document.
struct UpdateLayout {
    private var reader: PDFReader
    private var position: Int

    /// Returns why the bytes behind a revision are not in this form, as a clause for a message; `nil` if they are.
    ///
    /// - Parameters:
    ///   - end: The end of the revision.
    ///   - old: Has read it.
    ///   - new: Has read the file.
    static func flaw(after end: Int, _ old: PDFReader, _ new: PDFReader) throws(ProviderError) -> String? {
        let later = new.sections.count - old.sections.count
        guard new.start == 0, later >= 0,
            zip(new.sections[later...], old.sections).allSatisfy({ $0.offset == $1.offset })
        else { return "its cross-reference sections do not go on from those that were signed" }
        var layout = UpdateLayout(reader: new, position: end)
        for section in new.sections[..<later].reversed() {
            guard !section.isHybrid else { return "an update has two cross-reference sections" }
            if let flaw = try layout.flaw(of: section) { return flaw }
        }
        try layout.skipSpace()
        guard layout.position == new.source.count else {
            return "bytes at \(layout.position) belong to no revision"
        }
        guard later > 0 else { return nil }
        guard case .integer(let size)? = try PDFReader.directEntry("Size", of: new.sections[0].trailer)?.content,
            new.sections.allSatisfy({ $0.parts.allSatisfy { $0.numbers.upperBound <= size } })
        else { return "/Size is not above every number" }
        return nil
    }

    private mutating func flaw(of section: CrossReferences) throws(ProviderError) -> String? {
        var objects: [Int: Int] = [:]
        var (holders, own): (Set<Int>, Set<Int>) = ([], [])
        for number in section.parts.flatMap({ Array($0.numbers) }) {
            switch try section.entry(of: number, of: reader) {
            case .offset(let offset, _):
                guard objects.updateValue(number, forKey: offset) == nil else { return "two entries name one object" }
                own.insert(number)
            case .inStream(let holder, _): holders.insert(holder)
            case .free, nil: break
            }
        }
        guard holders.isSubset(of: own) else { return "an entry names an object stream of another revision" }
        while true {
            try skipSpace()
            guard position != section.offset else { break }
            guard let number = objects.removeValue(forKey: position) else {
                return "bytes at \(position) belong to no object"
            }
            if let flaw = try takeObject(number) { return flaw }
        }
        if section.stream != nil {
            let number = objects.removeValue(forKey: position)
            if let flaw = try takeObject(number) { return flaw }
        } else {
            let table = try reader.source.bytes(position..<section.tableEnd)
            guard table.starts(with: "xref".utf8), !table.contains(UInt8(ascii: "%")),
                section.parts.allSatisfy({ $0.width == 20 })
            else { return "a cross-reference table has an unusual form" }
            position = section.end
        }
        guard objects.isEmpty else { return "an entry names an object that is not in its revision" }
        return try takeEnd(of: section)
    }

    private mutating func takeObject(_ number: Int?) throws(ProviderError) -> String? {
        let object = try reader.object(at: position, nil)
        guard number.map({ $0 == object.reference.number }) ?? true else { return "an entry names another object" }
        position = try reader.end(of: object)
        return nil
    }

    /// Takes `startxref`, the offset and `%%EOF`. In front of them, some programs write a comment with their name.
    private mutating func takeEnd(of section: CrossReferences) throws(ProviderError) -> String? {
        let bytes = try reader.source.bytes(position..<(position + 1024))
        var scanner = PDFScanner(bytes, isWhole: true)
        try? scanner.skipSpace()
        func take(_ text: String) -> Bool {
            guard bytes[scanner.index...].starts(with: text.utf8) else { return false }
            scanner.index += text.utf8.count
            return true
        }
        func takeSpace() -> Bool {
            let start = scanner.index
            while scanner.index < bytes.count, PDFScanner.isSpace(bytes[scanner.index]) { scanner.index += 1 }
            return scanner.index > start
        }
        guard take("startxref"), takeSpace(), take("\(section.offset)"), takeSpace(), take("%%EOF") else {
            return "a revision does not end as it must"
        }
        position += scanner.index
        return nil
    }

    private mutating func skipSpace() throws(ProviderError) {
        while position < reader.source.count {
            let bytes = try reader.source.bytes(position..<(position + 256))
            guard let count = bytes.firstIndex(where: { !PDFScanner.isSpace($0) }) else {
                position += bytes.count
                continue
            }
            position += count
            return
        }
    }
}

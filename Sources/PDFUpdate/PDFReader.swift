import CertificateProviding

/// Reads objects of a document by their references.
///
/// Nothing is repaired: a reader that repairs a file may take the ranges of a signature from its own copy.
struct PDFReader {
    /// How many bytes an object may have that is read.
    static let maximumObject = 1 << 24

    let source: PDFSource
    /// The place of the header, from which offsets count.
    let start: Int
    /// The newest first.
    var sections: [CrossReferences] = []
    /// Whether an object of a stream must stand at the place that its entry says: some readers find it by that, and some by its number.
    var comparesIndexes = false
    /// The bytes that may still be read: objects that stand in each other would else take quadratic time.
    private var work: Int
    /// The object streams that were read last.
    private var objectStreams: [Int: ObjectStream] = [:]

    init(_ source: PDFSource) throws(ProviderError) {
        self.source = source
        work = source.count * 8 + (1 << 28)
        // Adobe's reader looks that far.
        let beginning = try source.bytes(0..<1024)
        guard let start = beginning.indices.first(where: { beginning[$0...].starts(with: "%PDF-".utf8) }) else {
            throw Self.damaged("it does not begin with %PDF-")
        }
        self.start = start
    }

    /// The error for what another reader would have to repair.
    static func damaged(_ reason: String) -> ProviderError {
        ProviderError(
            .malformedData,
            "The PDF is damaged: \(reason). Nothing is repaired here. To sign it, write the document anew, for example with "
                + "qpdf IN OUT, look at the result, and sign that.")
    }

    static func damaged(_ object: PDFObject, _ reason: String) -> ProviderError {
        damaged("object \(object.reference): \(reason)")
    }

    /// Takes from what may still be read.
    mutating func spend(_ bytes: Int) throws(ProviderError) {
        work -= bytes
        guard work >= 0 else { throw Self.damaged("its objects are read again and again") }
    }

    /// Scans at an offset, with a window that grows as needed.
    mutating func scan<Result>(
        at offset: Int, _ body: (inout PDFScanner) throws(PDFScanFailure) -> Result
    ) throws(ProviderError) -> Result {
        guard offset >= 0, offset < source.count - start else {
            throw Self.damaged("offset \(offset) is outside the file")
        }
        var size = 1024
        while true {
            let end = min(source.count, start + offset + size)
            var scanner = PDFScanner(try source.bytes((start + offset)..<end), isWhole: end == source.count)
            let result: Result
            do throws(PDFScanFailure) { result = try body(&scanner) } catch {
                guard case .isMalformed(let reason, let index) = error else {
                    guard size < Self.maximumObject else {
                        throw Self.damaged("the object at byte \(start + offset) has more than 16 MiB")
                    }
                    try spend(size)
                    size *= 4
                    continue
                }
                throw Self.damaged("at byte \(start + offset + index), \(reason)")
            }
            try spend(scanner.index)
            return result
        }
    }

    // Objects

    /// The object that a reference names; `nil` for one that the document does not have, which counts as null.
    mutating func object(_ reference: PDFReference) throws(ProviderError) -> PDFObject? {
        switch try entry(of: reference.number) {
        case .free, nil: return nil
        case .offset(let offset, let generation):
            guard generation == reference.generation else {
                throw Self.damaged("a reference to object \(reference) has another generation than its entry")
            }
            return try object(at: offset, reference)
        case .inStream(let number, let index):
            guard reference.generation == 0 else {
                throw Self.damaged("a reference to object \(reference) has another generation than its entry")
            }
            let object = try objectStream(number).object(reference.number, comparesIndexes ? index : nil)
            try spend(object.bytes.count)
            return object
        }
    }

    /// The entry of the newest section that has one.
    mutating func entry(of number: Int) throws(ProviderError) -> CrossReferences.Entry? {
        for (index, section) in sections.enumerated() {
            try spend(16)
            guard let entry = try section.entry(of: number, of: self) else { continue }
            // ISO 32000-2, 7.5.8.4: what only readers of streams see is free in the table.
            if case .free = entry, section.isHybrid, let other = try sections[index + 1].entry(of: number, of: self) {
                return other
            }
            return entry
        }
        return nil
    }

    /// The object at an offset, which must be the expected one.
    mutating func object(at offset: Int, _ expected: PDFReference?) throws(ProviderError) -> PDFObject {
        try scan(at: offset) { (scanner) throws(PDFScanFailure) in
            guard let reference = try scanner.header(), expected.map({ $0 == reference }) ?? true else {
                throw scanner.malformed("object \(expected.map { "\($0) " } ?? "")is not where its entry says")
            }
            guard reference.generation <= 65_535 else { throw scanner.malformed("a generation is above 65,535") }
            let value = try scanner.value()
            var object = PDFObject(reference: reference, bytes: scanner.bytes[value.range], value: value)
            if try scanner.take("stream") {
                // A line end, which is not a single CR.
                if try scanner.peek() == 0x0d { scanner.index += 1 }
                guard try scanner.peek() == 0x0a else {
                    throw scanner.malformed("stream is not followed by a line end")
                }
                object.stream = offset + scanner.index + 1
            } else if try !scanner.take("endobj") {
                throw scanner.malformed("object \(reference) does not end with endobj")
            }
            object.end = offset + scanner.index
            return object
        }
    }

    // Entries

    /// An entry of a dictionary, with the object that it refers to; `nil` where it is missing or null.
    mutating func entry<Value>(
        _ name: String, of place: PDFPlace, as kind: PDFKind<Value>
    ) throws(ProviderError) -> (value: Value, place: PDFPlace)? {
        guard let direct = try Self.directEntry(name, of: place), let entry = try resolve(direct, in: place.object)
        else {
            return nil
        }
        guard let value = kind.get(entry.value.content) else {
            throw Self.damaged(place.object, "/\(name) is not \(kind.name)")
        }
        return (value, entry)
    }

    /// An entry as it stands there.
    static func directEntry(_ name: String, of place: PDFPlace) throws(ProviderError) -> PDFValue? {
        guard case .dictionary(let entries) = place.value.content else {
            throw damaged(place.object, "it is not a dictionary")
        }
        let found = entries.filter { $0.name == name }
        guard found.count < 2 else { throw damaged(place.object, "its dictionary has two values of /\(name)") }
        return found.first?.value
    }

    /// The object that a reference names, or the value itself; `nil` for null.
    mutating func resolve(_ value: PDFValue, in object: PDFObject) throws(ProviderError) -> PDFPlace? {
        var place = PDFPlace(object, value)
        if case .reference(let reference) = value.content {
            guard let object = try self.object(reference) else { return nil }
            place = PDFPlace(object)
            if case .reference = place.value.content { throw Self.damaged(object, "it is itself a reference") }
        }
        if case .null = place.value.content { return nil }
        return place
    }

    // Streams

    /// The place of an object's stream in the file.
    mutating func streamRange(of object: PDFObject) throws(ProviderError) -> Range<Int> {
        let place = PDFPlace(object)
        guard let stream = object.stream, let length = try entry("Length", of: place, as: .integer)?.value,
            length >= 0, length <= source.count - start - stream
        else { throw Self.damaged(object, "its stream has no /Length, or one beyond the end of the file") }
        let isEnded = try scan(at: stream + length) { (scanner) throws(PDFScanFailure) in try scanner.take("endstream")
        }
        guard isEnded else { throw Self.damaged(object, "its stream does not end where /Length says") }
        return (start + stream)..<(start + stream + length)
    }

    /// The end of an object in the file, behind `endobj`.
    mutating func end(of object: PDFObject) throws(ProviderError) -> Int {
        guard object.stream != nil else { return start + object.end }
        let end = try streamRange(of: object).upperBound - start
        let size = try scan(at: end) { (scanner) throws(PDFScanFailure) in
            guard try scanner.take("endstream"), try scanner.take("endobj") else {
                throw scanner.malformed("object \(object.reference) does not end with endobj")
            }
            return scanner.index
        }
        return start + end + size
    }

    /// The decoded stream of an object.
    mutating func decodedStream(of object: PDFObject) throws(ProviderError) -> [UInt8] {
        let place = PDFPlace(object)
        let range = try streamRange(of: object)
        let length = range.count
        var (offset, end) = (range.lowerBound, range.upperBound)
        let (isCompressed, predictor) = try filter(of: place)
        guard isCompressed else {
            guard length <= StreamDecoder.maximumSize else {
                throw Self.damaged(object, "its stream has more than 32 MiB")
            }
            try spend(length)
            return try source.bytes(offset..<end)
        }
        do {
            let bytes = try StreamDecoder.inflate(
                {
                    let piece = try source.bytes(offset..<min(end, offset + (1 << 16)))
                    offset += piece.count
                    return piece
                }, predictor: predictor)
            end = offset
            try spend(length + bytes.count)
            return bytes
        } catch let error as PDFStreamFailure {
            throw Self.damaged(object, "its stream cannot be read: \(error.reason)")
        } catch {
            throw error as? ProviderError ?? Self.damaged(object, "\(error)")
        }
    }

    private mutating func filter(
        of place: PDFPlace
    ) throws(ProviderError) -> (isCompressed: Bool, predictor: StreamDecoder.Predictor?) {
        guard let (filter, parameters) = try onlyFilter(of: place) else { return (false, nil) }
        // The short name is for images in pages. Readers take it here too.
        guard filter == "FlateDecode" || filter == "Fl" else {
            throw Self.damaged(place.object, "its stream has the filter \(filter) instead of FlateDecode")
        }
        guard let parameters, let predictor = try entry("Predictor", of: parameters, as: .integer)?.value,
            predictor != 1
        else { return (true, nil) }
        let columns = try entry("Columns", of: parameters, as: .integer)?.value ?? 1
        let colors = try entry("Colors", of: parameters, as: .integer)?.value ?? 1
        let bits = try entry("BitsPerComponent", of: parameters, as: .integer)?.value ?? 8
        guard predictor >= 10, (1...65_536).contains(columns), (1...32).contains(colors), (1...16).contains(bits) else {
            throw Self.damaged(place.object, "its stream has predictor \(predictor) or unusual parameters")
        }
        return (true, .init(rowLength: (columns * colors * bits + 7) / 8, pixelLength: (colors * bits + 7) / 8))
    }

    /// The filter of a stream and its parameters; `nil` for none.
    private mutating func onlyFilter(
        of place: PDFPlace
    ) throws(ProviderError) -> (name: String, parameters: PDFPlace?)? {
        guard let direct = try Self.directEntry("Filter", of: place), var filter = try resolve(direct, in: place.object)
        else {
            return nil
        }
        var parameters = try Self.directEntry("DecodeParms", of: place)
        if case .array(let filters) = filter.value.content {
            guard filters.count < 2 else { throw Self.damaged(place.object, "its stream has several filters") }
            guard let first = filters.first, let only = try resolve(first, in: filter.object) else { return nil }
            filter = only
        }
        guard case .name(let name) = filter.value.content else {
            throw Self.damaged(place.object, "/Filter is not a name")
        }
        var holder = place.object
        if let value = parameters, let list = try resolve(value, in: holder),
            case .array(let values) = list.value.content
        {
            (holder, parameters) = (list.object, values.first)
        }
        return (
            name, try parameters.flatMap { (value) throws(ProviderError) in try resolve(value, in: holder) }
        )
    }

    private mutating func objectStream(_ number: Int) throws(ProviderError) -> ObjectStream {
        if let known = objectStreams[number] { return known }
        guard case .offset(let offset, 0) = try entry(of: number) else {
            throw Self.damaged("the object stream \(number) 0 has no offset")
        }
        let object = try object(at: offset, PDFReference(number: number, generation: 0))
        guard try entry("Type", of: PDFPlace(object), as: .name)?.value == "ObjStm",
            let count = try entry("N", of: PDFPlace(object), as: .integer)?.value,
            let first = try entry("First", of: PDFPlace(object), as: .integer)?.value
        else { throw Self.damaged(object, "an entry says that it is an object stream") }
        let bytes = try decodedStream(of: object)
        let stream = try ObjectStream(object, bytes, count: count, first: first)
        // Most documents are read with one or two of them.
        if objectStreams.values.reduce(bytes.count, { $0 + $1.bytes.count }) > StreamDecoder.maximumSize {
            objectStreams = [:]
        }
        objectStreams[number] = stream
        return stream
    }
}

/// Objects in a stream (ISO 32000-2, 7.5.7).
struct ObjectStream {
    let holder: PDFObject
    let bytes: [UInt8]
    /// The start of each object.
    let offsets: [Int: Int]
    /// Their numbers, in their order.
    let numbers: [Int]

    init(_ holder: PDFObject, _ bytes: [UInt8], count: Int, first: Int) throws(ProviderError) {
        (self.holder, self.bytes) = (holder, bytes)
        var scanner = PDFScanner(bytes, isWhole: true)
        var (offsets, numbers): ([Int: Int], [Int]) = ([:], [])
        do throws(PDFScanFailure) {
            while offsets.count < count {
                guard let number = try scanner.number(), let offset = try scanner.number(), first >= 0,
                    offset < bytes.count, first < bytes.count - offset,
                    offsets.updateValue(first + offset, forKey: number) == nil
                else { throw scanner.malformed("") }
                numbers.append(number)
            }
        } catch { throw PDFReader.damaged(holder, "the list of its objects is wrong") }
        (self.offsets, self.numbers) = (offsets, numbers)
    }

    /// - Parameter index: The place that it must have; `nil` for any.
    func object(_ number: Int, _ index: Int?) throws(ProviderError) -> PDFObject {
        guard let offset = offsets[number],
            index.map({ numbers.indices.contains($0) && numbers[$0] == number }) ?? true
        else {
            throw PDFReader.damaged(holder, "object \(number) 0 is not in it")
        }
        var scanner = PDFScanner(bytes, isWhole: true)
        scanner.index = offset
        do throws(PDFScanFailure) {
            let value = try scanner.value()
            return PDFObject(
                reference: PDFReference(number: number, generation: 0), bytes: bytes[value.range], value: value)
        } catch { throw PDFReader.damaged(holder, "object \(number) 0 in it cannot be read") }
    }
}

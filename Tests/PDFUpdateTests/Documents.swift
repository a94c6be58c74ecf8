/// Small documents with one page, each kind as other programs write them.
enum Documents {
    typealias Objects = [Int: String]

    /// Catalog 1, page tree 2, page 3.
    static func objects(catalog: String = "", page: String = "", _ more: Objects = [:]) -> Objects {
        [
            1: "<< /Type /Catalog /Pages 2 0 R \(catalog) >>",
            2: "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
            3: "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Resources << >> \(page) >>",
        ].merging(more) { $1 }
    }

    /// Bytes with objects, and where these are.
    private struct Body {
        var bytes: [UInt8] = []
        var offsets: [Int: Int] = [:]

        init(header: String = "%PDF-1.7\n%\u{e2}\u{e3}\u{cf}\u{d3}\n") {
            bytes = header.unicodeScalars.map { UInt8($0.value) }
        }

        mutating func write(_ text: String) { bytes += text.utf8 }

        mutating func write(_ objects: Objects) {
            for (number, value) in objects.sorted(by: { $0.key < $1.key }) {
                offsets[number] = bytes.count
                write("\(number) 0 obj\n\(value)\nendobj\n")
            }
        }

        /// A table; `hidden` objects are free in it.
        mutating func writeTable(_ trailer: String, hidden: [Int] = [], isUpdate: Bool = false) {
            let start = bytes.count
            // An update's is above the numbers of the document, too.
            let size = max((Array(offsets.keys) + hidden).reduce(0, max) + 1, isUpdate ? 64 : 0)
            write("xref\n")
            if !isUpdate { write("0 1\n0000000000 65535 f \n") }
            for (number, offset) in offsets.sorted(by: { $0.key < $1.key }) where !hidden.contains(number) {
                write("\(number) 1\n\(digits(offset, 10)) 00000 n \n")
            }
            for number in hidden { write("\(number) 1\n0000000000 00000 f \n") }
            write("trailer\n<< /Size \(size) /Root 1 0 R \(trailer) >>\nstartxref\n\(start)\n%%EOF\n")
        }

        /// A stream without a filter that has the entries of these objects. Returns where it begins.
        mutating func writeStream(number: Int, _ entries: [Int: (kind: Int, first: Int, second: Int)], trailer: String)
            -> Int
        {
            let start = bytes.count
            var entries = entries
            entries[number] = (1, start, 0)
            let sorted = entries.sorted { $0.key < $1.key }
            let index = sorted.map { "\($0.key) 1" }.joined(separator: " ")
            write(
                "\(number) 0 obj\n<< /Type /XRef /Size \(number + 1) /W [1 3 1] /Index [\(index)] /Length \(sorted.count * 5) \(trailer) >>\nstream\n"
            )
            for (_, entry) in sorted {
                bytes += [
                    UInt8(entry.kind), UInt8(entry.first >> 16), UInt8(entry.first >> 8 & 0xff),
                    UInt8(entry.first & 0xff), UInt8(entry.second),
                ]
            }
            write("\nendstream\nendobj\n")
            return start
        }

        /// An object stream, and the entries of its objects.
        mutating func writeObjectStream(number: Int, _ objects: Objects) -> [Int: (kind: Int, first: Int, second: Int)]
        {
            var (list, text) = ("", "")
            var entries: [Int: (kind: Int, first: Int, second: Int)] = [:]
            for (index, object) in objects.sorted(by: { $0.key < $1.key }).enumerated() {
                list += "\(object.key) \(text.utf8.count) "
                text += object.value + "\n"
                entries[object.key] = (2, number, index)
            }
            offsets[number] = bytes.count
            write(
                "\(number) 0 obj\n<< /Type /ObjStm /N \(objects.count) /First \(list.utf8.count) /Length \((list + text).utf8.count) >>\nstream\n\(list)\(text)\nendstream\nendobj\n"
            )
            return entries
        }
    }

    private static func digits(_ number: Int, _ count: Int) -> String {
        String(repeating: "0", count: count - String(number).count) + String(number)
    }

    /// A document with a table.
    static func table(_ objects: Objects = objects(), trailer: String = "") -> [UInt8] {
        var body = Body()
        body.write(objects)
        body.writeTable(trailer)
        return body.bytes
    }

    /// A document with another section, a table: an update with objects.
    static func updated(_ document: [UInt8], _ objects: Objects, trailer: String = "") -> [UInt8] {
        let last = String(decoding: document, as: UTF8.self).split(separator: "\n").dropLast().last ?? ""
        var body = Body(header: "")
        body.bytes = document
        body.write(objects)
        body.writeTable("/Prev \(last) \(trailer)", isUpdate: true)
        return body.bytes
    }

    /// A document with a cross-reference stream; `compressed` objects are in an object stream.
    static func stream(_ objects: Objects = objects(), compressed: [Int] = [], trailer: String = "") -> [UInt8] {
        var body = Body()
        let next = objects.keys.reduce(0, max) + 1
        body.write(objects.filter { !compressed.contains($0.key) })
        var entries: [Int: (kind: Int, first: Int, second: Int)] = [0: (0, 0, 255)]
        if !compressed.isEmpty {
            entries.merge(body.writeObjectStream(number: next, objects.filter { compressed.contains($0.key) })) { $1 }
        }
        entries.merge(body.offsets.mapValues { (1, $0, 0) }) { $1 }
        let start = body.writeStream(number: next + 1, entries, trailer: "/Root 1 0 R \(trailer)")
        body.write("startxref\n\(start)\n%%EOF\n")
        return body.bytes
    }

    /// A document with a table whose `hidden` objects are in an object stream, which only readers of streams see.
    static func hybrid(_ objects: Objects = objects(), hidden: [Int]) -> [UInt8] {
        var body = Body()
        let next = objects.keys.reduce(0, max) + 1
        body.write(objects.filter { !hidden.contains($0.key) })
        let entries = body.writeObjectStream(number: next, objects.filter { hidden.contains($0.key) })
        let start = body.writeStream(number: next + 1, entries, trailer: "")
        body.offsets[next + 1] = start
        body.writeTable("/XRefStm \(start)", hidden: hidden)
        return body.bytes
    }
}

import CertificateProviding

/// Why a scan ended early.
enum PDFScanFailure: Error {
    /// The window ends, the document does not.
    case isShort
    case isMalformed(_ reason: String, at: Int)
}

/// Reads values from a window of a document.
struct PDFScanner {
    /// How deep arrays and dictionaries may be nested.
    static let maximumDepth = 100

    let bytes: [UInt8]
    /// Whether the document ends where the window does.
    let isWhole: Bool
    var index = 0

    init(_ bytes: [UInt8], isWhole: Bool) { (self.bytes, self.isWhole) = (bytes, isWhole) }

    /// The next byte; `nil` at the end of the document.
    func peek(_ ahead: Int = 0) throws(PDFScanFailure) -> UInt8? {
        if index + ahead < bytes.count { return bytes[index + ahead] }
        guard isWhole else { throw .isShort }
        return nil
    }

    private mutating func next(in what: String) throws(PDFScanFailure) -> UInt8 {
        guard let byte = try peek() else { throw malformed("the document ends within \(what)") }
        index += 1
        return byte
    }

    func malformed(_ reason: String) -> PDFScanFailure { .isMalformed(reason, at: index) }

    static func isSpace(_ byte: UInt8) -> Bool {
        byte == 0x20 || byte == 0 || (0x09...0x0d).contains(byte) && byte != 0x0b
    }
    private static let delimiters = Array("()<>[]{}/%".utf8)
    private static func isRegular(_ byte: UInt8) -> Bool { !isSpace(byte) && !delimiters.contains(byte) }

    /// Skips white space and comments.
    mutating func skipSpace() throws(PDFScanFailure) {
        while let byte = try peek() {
            if byte == UInt8(ascii: "%") {
                while let byte = try peek(), byte != 0x0a, byte != 0x0d { index += 1 }
            } else if Self.isSpace(byte) {
                index += 1
            } else {
                return
            }
        }
    }

    /// Skips white space, and takes a run of regular characters: a number, a keyword, or nothing.
    mutating func word() throws(PDFScanFailure) -> ArraySlice<UInt8> {
        try skipSpace()
        let start = index
        while let byte = try peek(), Self.isRegular(byte) { index += 1 }
        return bytes[start..<index]
    }

    /// Takes a number without a sign, of at most 18 digits; else leaves the index alone.
    mutating func number() throws(PDFScanFailure) -> Int? {
        let start = index
        if let value = Self.decimal(try word()) { return value }
        index = start
        return nil
    }

    /// The value of digits; `nil` for anything else.
    static func decimal(_ digits: ArraySlice<UInt8>) -> Int? {
        guard !digits.isEmpty, digits.count <= 18, digits.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return digits.reduce(0) { $0 * 10 + Int($1 - 0x30) }
    }

    /// Takes this word; else leaves the index alone.
    mutating func take(_ expected: StaticString) throws(PDFScanFailure) -> Bool {
        let start = index
        let found = try word()
        if found.elementsEqual(UnsafeBufferPointer(start: expected.utf8Start, count: expected.utf8CodeUnitCount)) {
            return true
        }
        index = start
        return false
    }

    /// Takes the beginning of an object, `12 0 obj`; else leaves the index alone.
    mutating func header() throws(PDFScanFailure) -> PDFReference? {
        let start = index
        if let number = try self.number(), let generation = try self.number(), try take("obj") {
            return PDFReference(number: number, generation: generation)
        }
        index = start
        return nil
    }

    mutating func value(depth: Int = 0) throws(PDFScanFailure) -> PDFValue {
        try skipSpace()
        let start = index
        let content: PDFValue.Content
        switch try peek() {
        case UInt8(ascii: "/"): content = .name(try name())
        case UInt8(ascii: "("): content = .string(try literalString())
        case UInt8(ascii: "["): content = .array(try array(depth: depth))
        case UInt8(ascii: "<"):
            content =
                try peek(1) == UInt8(ascii: "<") ? .dictionary(try dictionary(depth: depth)) : .string(try hexString())
        default: content = try keyword()
        }
        return PDFValue(content: content, range: start..<index)
    }

    private mutating func name() throws(PDFScanFailure) -> String {
        index += 1
        var name: [UInt8] = []
        while let byte = try peek(), Self.isRegular(byte) {
            index += 1
            if byte == UInt8(ascii: "#"), let high = try peek()?.hexadecimalValue,
                let low = try peek(1)?.hexadecimalValue
            {
                name.append(high << 4 | low)
                index += 2
            } else {
                name.append(byte)
            }
        }
        // A scalar for each byte: strings of Unicode can be equal that have different bytes, such as K and the sign of kelvin.
        return String(String.UnicodeScalarView(name.map { Unicode.Scalar($0) }))
    }

    private mutating func literalString() throws(PDFScanFailure) -> [UInt8] {
        index += 1
        var (string, depth) = ([UInt8](), 1)
        while true {
            var byte = try next(in: "a string")
            switch byte {
            case UInt8(ascii: "("): depth += 1
            case UInt8(ascii: ")"):
                depth -= 1
                if depth == 0 { return string }
            case UInt8(ascii: "\\"):
                guard let escaped = try escape() else { continue }
                byte = escaped
            default: break
            }
            string.append(byte)
        }
    }

    /// The character of an escape sequence; `nil` for a line end, which does not count.
    private mutating func escape() throws(PDFScanFailure) -> UInt8? {
        let byte = try next(in: "a string")
        switch byte {
        case UInt8(ascii: "n"): return 0x0a
        case UInt8(ascii: "r"): return 0x0d
        case UInt8(ascii: "t"): return 0x09
        case UInt8(ascii: "b"): return 0x08
        case UInt8(ascii: "f"): return 0x0c
        case 0x0a: return nil
        case 0x0d:
            if try peek() == 0x0a { index += 1 }
            return nil
        case 0x30...0x37:
            var value = byte - 0x30
            for _ in 0..<2 {
                guard let digit = try peek(), (0x30...0x37).contains(digit) else { break }
                value = value &* 8 &+ (digit - 0x30)
                index += 1
            }
            return value
        default: return byte
        }
    }

    private mutating func hexString() throws(PDFScanFailure) -> [UInt8] {
        index += 1
        var digits: [UInt8] = []
        while true {
            let byte = try next(in: "a string")
            if byte == UInt8(ascii: ">") { break }
            if Self.isSpace(byte) { continue }
            guard let digit = byte.hexadecimalValue else {
                throw malformed("a string has a character that is not hexadecimal")
            }
            digits.append(digit)
        }
        if !digits.count.isMultiple(of: 2) { digits.append(0) }
        return stride(from: 0, to: digits.count, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
    }

    private mutating func array(depth: Int) throws(PDFScanFailure) -> [PDFValue] {
        guard depth < Self.maximumDepth else { throw malformed("values are nested too deeply") }
        index += 1
        var values: [PDFValue] = []
        while true {
            try skipSpace()
            if try peek() == UInt8(ascii: "]") { break }
            values.append(try value(depth: depth + 1))
        }
        index += 1
        return values
    }

    private mutating func dictionary(depth: Int) throws(PDFScanFailure) -> [(name: String, value: PDFValue)] {
        guard depth < Self.maximumDepth else { throw malformed("values are nested too deeply") }
        index += 2
        var entries: [(name: String, value: PDFValue)] = []
        while true {
            try skipSpace()
            let byte = try peek()
            if byte == UInt8(ascii: ">"), try peek(1) == byte { break }
            guard byte == UInt8(ascii: "/") else { throw malformed("a key of a dictionary is not a name") }
            entries.append((try name(), try value(depth: depth + 1)))
        }
        index += 2
        return entries
    }

    /// A number, a reference, or one of the three words.
    private mutating func keyword() throws(PDFScanFailure) -> PDFValue.Content {
        let start = index
        let word = try word()
        if let number = Self.decimal(word) {
            let end = index
            if let generation = try self.number(), try take("R") {
                return .reference(PDFReference(number: number, generation: generation))
            }
            index = end
            return .integer(number)
        }
        if word.elementsEqual("true".utf8) { return .boolean(true) }
        if word.elementsEqual("false".utf8) { return .boolean(false) }
        if word.elementsEqual("null".utf8) { return .null }
        if let sign = word.first, sign == UInt8(ascii: "-") || sign == UInt8(ascii: "+"),
            let number = Self.decimal(word.dropFirst())
        {
            return .integer(sign == UInt8(ascii: "-") ? -number : number)
        }
        let isNumber = word.allSatisfy { (0x30...0x39).contains($0) || $0 == 0x2e || $0 == 0x2d || $0 == 0x2b }
        guard !word.isEmpty, isNumber else {
            index = start
            throw malformed("a value is missing or not one")
        }
        return .real
    }
}

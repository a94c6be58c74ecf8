import CertificateProviding

/// Reads a JSON text (RFC 8259), once from its start to its end.
struct JSONReader {
    /// A step of a path.
    private enum Step {
        case member(String)
        case element(Int)
    }
    private let bytes: UnsafeBufferPointer<UInt8>
    private let maximumDepth: Int
    private let acceptsDuplicates: Bool
    private var position = 0
    /// Where the reader is.
    private var path: [Step] = []
    private var valuesLeft = JSONValue.maximumValues

    private init(_ bytes: UnsafeBufferPointer<UInt8>, _ maximumDepth: Int, _ acceptsDuplicates: Bool) {
        (self.bytes, self.maximumDepth, self.acceptsDuplicates) = (bytes, maximumDepth, acceptsDuplicates)
    }

    /// Reads a text.
    ///
    /// - Parameter acceptsDuplicates: Whether members of an object may have the same name.
    /// - Throws: `malformedData`.
    static func read(
        _ bytes: [UInt8], maximumSize: Int, maximumDepth: Int, acceptsDuplicates: Bool
    ) throws(ProviderError) -> JSONValue {
        guard bytes.count <= maximumSize else {
            throw ProviderError(
                .malformedData, "The JSON text has \(bytes.count) bytes; at most \(maximumSize) are read.")
        }
        // withUnsafeBufferPointer does not pass the type of an error on.
        let result = bytes.withUnsafeBufferPointer { buffer in
            Result { () throws(ProviderError) in
                var reader = JSONReader(buffer, maximumDepth, acceptsDuplicates)
                return try reader.text()
            }
        }
        return try result.get()
    }

    private mutating func text() throws(ProviderError) -> JSONValue {
        if bytes.starts(with: [0xef, 0xbb, 0xbf]) { throw failure("begins with a byte order mark; write it without") }
        skipWhiteSpace()
        let value = try value(depth: 1)
        guard next == nil else { throw unexpected("after its end") }
        return value
    }

    // MARK: - Values

    /// The byte at the position; `nil` at the end.
    private var next: UInt8? { position < bytes.count ? bytes[position] : nil }

    private mutating func skipWhiteSpace() {
        while let next, next == 0x20 || next == 0x0a || next == 0x0d || next == 0x09 { position += 1 }
    }

    /// Reads a value, and the white space after it.
    private mutating func value(depth: Int) throws(ProviderError) -> JSONValue {
        guard valuesLeft > 0 else {
            throw failure("is one value too many: at most \(JSONValue.maximumValues) are read")
        }
        valuesLeft -= 1
        let value: JSONValue
        switch next {
        case UInt8(ascii: "{"): value = .object(try members(depth: depth))
        case UInt8(ascii: "["): value = .array(try elements(depth: depth))
        case UInt8(ascii: "\""): value = .string(try string())
        case UInt8(ascii: "t"): value = try literal("true", .bool(true))
        case UInt8(ascii: "f"): value = try literal("false", .bool(false))
        case UInt8(ascii: "n"): value = try literal("null", .null)
        default: value = .number(try number())
        }
        skipWhiteSpace()
        return value
    }

    private mutating func members(depth: Int) throws(ProviderError) -> [JSONValue.Member] {
        try enter(depth)
        var members: [JSONValue.Member] = []
        var names: Set<String> = []
        guard try !ends(with: UInt8(ascii: "}"), isFirst: true) else { return members }
        repeat {
            guard next == UInt8(ascii: "\"") else { throw unexpected("where a member's name must be") }
            let name = try string()
            path.append(.member(name))
            // Names that Unicode takes for equivalent are one for many readers.
            guard names.insert(name).inserted || acceptsDuplicates else {
                throw failure("is there twice; which one counts differs from reader to reader")
            }
            skipWhiteSpace()
            guard next == UInt8(ascii: ":") else { throw unexpected("where a colon must be") }
            position += 1
            skipWhiteSpace()
            members.append(JSONValue.Member(name, try value(depth: depth + 1)))
            path.removeLast()
        } while try !ends(with: UInt8(ascii: "}"), isFirst: false)
        return members
    }

    private mutating func elements(depth: Int) throws(ProviderError) -> [JSONValue] {
        try enter(depth)
        var elements: [JSONValue] = []
        guard try !ends(with: UInt8(ascii: "]"), isFirst: true) else { return elements }
        repeat {
            path.append(.element(elements.count))
            elements.append(try value(depth: depth + 1))
            path.removeLast()
        } while try !ends(with: UInt8(ascii: "]"), isFirst: false)
        return elements
    }

    private mutating func enter(_ depth: Int) throws(ProviderError) {
        guard depth <= maximumDepth else {
            // The whole path would be as deep.
            path = Array(path.prefix(1))
            throw failure("has more than \(maximumDepth) levels")
        }
        position += 1
        skipWhiteSpace()
    }

    /// Reads the end of an object or array, or the comma before its next member.
    private mutating func ends(with end: UInt8, isFirst: Bool) throws(ProviderError) -> Bool {
        if next == end {
            position += 1
            return true
        }
        guard !isFirst else { return false }
        guard next == UInt8(ascii: ",") else {
            throw unexpected("where a comma or \(Character(Unicode.Scalar(end))) must be")
        }
        position += 1
        skipWhiteSpace()
        return false
    }

    private mutating func literal(
        _ text: StaticString, _ value: JSONValue
    ) throws(ProviderError) -> JSONValue {
        let end = position + text.utf8CodeUnitCount
        guard end <= bytes.count, "\(text)".utf8.elementsEqual(bytes[position..<end]) else {
            throw unexpected("where a value must be")
        }
        position = end
        return value
    }

    private mutating func number() throws(ProviderError) -> String {
        let start = position
        if next == UInt8(ascii: "-") { position += 1 }
        let first = next
        guard skipDigits() else {
            throw position == start ? unexpected("where a value must be") : unexpected("where a digit must be")
        }
        guard first != UInt8(ascii: "0") || position - start == (bytes[start] == UInt8(ascii: "-") ? 2 : 1) else {
            throw failure("is a number that begins with a zero")
        }
        if next == UInt8(ascii: ".") {
            position += 1
            guard skipDigits() else { throw unexpected("where a digit must be") }
        }
        if next == UInt8(ascii: "e") || next == UInt8(ascii: "E") {
            position += 1
            if next == UInt8(ascii: "+") || next == UInt8(ascii: "-") { position += 1 }
            guard skipDigits() else { throw unexpected("where a digit must be") }
        }
        return String(decoding: bytes[start..<position], as: UTF8.self)
    }

    /// - Returns: Whether there was one.
    private mutating func skipDigits() -> Bool {
        let start = position
        while let next, (0x30...0x39).contains(next) { position += 1 }
        return position > start
    }

    // MARK: - Strings

    private mutating func string() throws(ProviderError) -> String {
        position += 1
        var text = ""
        while true {
            guard let end = Self.endOfPlainText(in: bytes, from: position) else {
                position = bytes.count
                throw unexpected("inside a string")
            }
            guard let piece = String(validating: bytes[position..<end], as: UTF8.self) else {
                throw failure("is not UTF-8")
            }
            if text.isEmpty { text = piece } else { text += piece }
            position = end
            switch bytes[end] {
            case UInt8(ascii: "\""):
                position += 1
                return text
            case UInt8(ascii: "\\"): text.unicodeScalars.append(try escaped())
            default: throw failure("has a control character that is not escaped")
            }
        }
    }

    private mutating func escaped() throws(ProviderError) -> Unicode.Scalar {
        position += 1
        guard let letter = next else { throw unexpected("inside a string") }
        position += 1
        switch letter {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return Unicode.Scalar(letter)
        case UInt8(ascii: "b"): return "\u{8}"
        case UInt8(ascii: "f"): return "\u{c}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        case UInt8(ascii: "u"):
            let first = try codeUnit()
            if let scalar = Unicode.Scalar(first) { return scalar }
            guard first < 0xdc00, next == UInt8(ascii: "\\"), position + 1 < bytes.count,
                bytes[position + 1] == UInt8(ascii: "u")
            else { throw failure("has half of a surrogate pair") }
            position += 2
            let second = try codeUnit()
            guard (0xdc00...0xdfff).contains(second),
                let scalar = Unicode.Scalar(0x10000 + (UInt32(first) - 0xd800) << 10 + (UInt32(second) - 0xdc00))
            else { throw failure("has half of a surrogate pair") }
            return scalar
        default: throw failure("has an unknown escape")
        }
    }

    private mutating func codeUnit() throws(ProviderError) -> UInt16 {
        var unit: UInt16 = 0
        for _ in 0..<4 {
            let digit: UInt16
            switch next {
            case let byte? where (0x30...0x39).contains(byte): digit = UInt16(byte) - 0x30
            case let byte? where (0x41...0x46).contains(byte): digit = UInt16(byte) - 0x41 + 10
            case let byte? where (0x61...0x66).contains(byte): digit = UInt16(byte) - 0x61 + 10
            default: throw unexpected("where a hexadecimal digit must be")
            }
            unit = unit << 4 | digit
            position += 1
        }
        return unit
    }

    /// Returns the place of the next quotation mark, backslash or control character; `nil` if there is none.
    static func endOfPlainText(in bytes: UnsafeBufferPointer<UInt8>, from start: Int) -> Int? {
        var position = start
        let raw = UnsafeRawBufferPointer(bytes)
        // Eight bytes at a time: files are of up to 80 MiB, most of it base64. The well-known tests for a byte that is zero, and for
        // one below 0x20; both may stop early at another byte, and never late.
        let (low, high): (UInt64, UInt64) = (0x0101_0101_0101_0101, 0x8080_8080_8080_8080)
        while position + 8 <= raw.count {
            let word = raw.loadUnaligned(fromByteOffset: position, as: UInt64.self)
            let quote = word ^ (low &* 0x22)
            let backslash = word ^ (low &* 0x5c)
            let control = (word &- low &* 0x20) & ~word
            let found = (quote &- low) & ~quote | (backslash &- low) & ~backslash | control
            if found & high != 0, let place = (position..<(position + 8)).first(where: { isSpecial(bytes[$0]) }) {
                return place
            }
            position += 8
        }
        while position < bytes.count {
            if isSpecial(bytes[position]) { return position }
            position += 1
        }
        return nil
    }

    private static func isSpecial(_ byte: UInt8) -> Bool {
        byte < 0x20 || byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\")
    }

    // MARK: - Errors

    private func unexpected(_ place: String) -> ProviderError {
        guard let next else { return failure("ends \(place)") }
        let found = (0x21...0x7e).contains(next) ? "\(Character(Unicode.Scalar(next)))" : "byte \(next)"
        return failure("has \(found) \(place) (byte \(position + 1) of the file)")
    }

    private func failure(_ problem: String) -> ProviderError {
        var text = ""
        for step in path {
            switch step {
            case .member(let name): text += (text.isEmpty ? "" : ".") + JSONPath.visible(name)
            case .element(let index): text += "[\(index)]"
            }
        }
        return ProviderError(.malformedData, "\(text.isEmpty ? "The JSON text" : text): \(problem).")
    }
}

/// Paths of members in messages.
enum JSONPath {
    /// A name from outside, without control characters, and cut.
    static func visible(_ name: String) -> String {
        let cut = name.unicodeScalars.prefix(64)
        let text = DisplayText.visible(String(String.UnicodeScalarView(cut)))
        return name.unicodeScalars.count > 64 ? text + "…" : text
    }
}

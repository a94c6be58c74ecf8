import SwiftASN1
import X509

extension DistinguishedName {
    /// Reads an RFC 4514 string, such as `CN=client,O=Example\, Inc.,C=DE`. Blanks around `,`, `+` and `=` are
    /// permitted. The empty string is the empty name.
    ///
    /// - Throws: `malformedData`.
    init(rfc4514 text: String) throws(ProviderError) {
        var reader = RFC4514Reader(text)
        self.init(try reader.name())
    }
}

/// A reader of the string representation of a name (RFC 4514, section 3).
private struct RFC4514Reader {
    private let text: String
    private var rest: Substring.UnicodeScalarView

    init(_ text: String) {
        self.text = text
        self.rest = text[...].unicodeScalars
    }

    /// Returns the relative names in the order of the DER, which is the reverse of the string's.
    mutating func name() throws(ProviderError) -> [RelativeDistinguishedName] {
        var names: [RelativeDistinguishedName] = []
        guard text.unicodeScalars.contains(where: { $0 != " " }) else { return [] }
        while true {
            var attributes = [try attribute()]
            while rest.first == "+" {
                rest.removeFirst()
                attributes.append(try attribute())
            }
            names.append(RelativeDistinguishedName(attributes))
            guard let separator = rest.popFirst() else { return names.reversed() }
            guard separator == "," else { throw refusal("unexpected '\(separator)'") }
        }
    }

    private mutating func attribute() throws(ProviderError) -> RelativeDistinguishedName.Attribute {
        skipBlanks()
        let word = String(String.UnicodeScalarView(rest.prefix { $0 != "=" && $0 != "," && $0 != "+" }))
        rest.removeFirst(word.unicodeScalars.count)
        guard rest.popFirst() == "=" else { throw refusal("'\(word)' has no value; write TYPE=VALUE") }
        let typeName = word.split(separator: " ").joined()
        guard let type = Self.type(named: typeName) else {
            throw refusal("'\(typeName)' is not a known attribute type")
        }
        skipBlanks()
        do {
            if rest.first == "#" { return .init(type: type, value: .init(asn1Any: try derValue())) }
            return try Self.attribute(type, try stringValue())
        } catch let error as ProviderError {
            throw error
        } catch {
            throw refusal("the value of '\(typeName)' contains characters that are not permitted there")
        }
    }

    /// Reads a value in hexadecimal DER (section 2.4).
    private mutating func derValue() throws -> ASN1Any {
        rest.removeFirst()
        let digits = rest.prefix { $0 != "," && $0 != "+" && $0 != " " }.map(\.value)
        rest.removeFirst(digits.count)
        skipBlanks()
        var bytes: [UInt8] = []
        for index in stride(from: 0, to: digits.count, by: 2) {
            guard index + 1 < digits.count, let high = Self.hexDigit(digits[index]),
                let low = Self.hexDigit(digits[index + 1])
            else { throw refusal("a value after '#' must be hexadecimal DER") }
            bytes.append(high << 4 | low)
        }
        return try ASN1Any(derEncoded: bytes)
    }

    private mutating func stringValue() throws(ProviderError) -> String {
        var bytes: [UInt8] = []
        // Blanks at the end are not part of the value unless they are escaped.
        var end = 0
        while let scalar = rest.first, scalar != ",", scalar != "+" {
            rest.removeFirst()
            switch scalar {
            case "\\":
                guard let next = rest.popFirst() else { throw refusal("it ends with a backslash") }
                if let high = Self.hexDigit(next.value) {
                    guard let low = rest.popFirst().flatMap({ Self.hexDigit($0.value) }) else {
                        throw refusal("a backslash must be followed by a special character or two hexadecimal digits")
                    }
                    bytes.append(high << 4 | low)
                } else {
                    bytes += String(next).utf8
                }
                end = bytes.count
            case "\"", ";", "<", ">", "\0":
                throw refusal("write \\ before \(String(scalar).withVisibleControls)")
            default:
                bytes += String(scalar).utf8
                if scalar != " " { end = bytes.count }
            }
        }
        guard let value = String(validating: bytes.prefix(end), as: UTF8.self), !value.isEmpty else {
            throw refusal("a value is empty, or not UTF-8")
        }
        return value
    }

    private mutating func skipBlanks() { rest = rest.drop { $0 == " " } }

    private func refusal(_ reason: String) -> ProviderError {
        ProviderError(
            .malformedData,
            "'\(text.withVisibleControls)' is not a valid name (RFC 4514): \(reason.withVisibleControls).")
    }

    private static func hexDigit(_ value: UInt32) -> UInt8? { UInt8(exactly: value)?.hexadecimalValue }

    private static func type(named name: String) -> ASN1ObjectIdentifier? {
        let lowercased = name.lowercased()
        if let known = DistinguishedName.shortNames.first(where: { $0.value.lowercased() == lowercased }) {
            return known.key
        }
        if let known = otherNames[lowercased] { return known }
        let numbers = name.split(separator: ".", omittingEmptySubsequences: false).map { UInt($0) }
        let identifier = numbers.compactMap { $0 }
        guard identifier.count == numbers.count, identifier.count >= 2, identifier[0] <= 2,
            identifier[0] == 2 || identifier[1] < 40
        else { return nil }
        return try? ASN1ObjectIdentifier(elements: identifier)
    }

    /// Common names besides the registered ones.
    private static let otherNames: [String: ASN1ObjectIdentifier] = [
        "e": [1, 2, 840, 113549, 1, 9, 1], "email": [1, 2, 840, 113549, 1, 9, 1], "s": [2, 5, 4, 8],
        "surname": [2, 5, 4, 4], "givenname": [2, 5, 4, 42],
    ]

    /// Creates an attribute with the string type that RFC 5280, appendix A.1, requires or prefers.
    private static func attribute(
        _ type: ASN1ObjectIdentifier, _ value: String
    ) throws -> RelativeDistinguishedName.Attribute {
        switch type {
        // Country, serial number and DN qualifier.
        case [2, 5, 4, 6], [2, 5, 4, 5], [2, 5, 4, 46]: try .init(type: type, printableString: value)
        // Mail address and domain component.
        case [1, 2, 840, 113549, 1, 9, 1], [0, 9, 2342, 19_200_300, 100, 1, 25]:
            try .init(type: type, value: .init(ia5String: value))
        default: .init(type: type, utf8String: value)
        }
    }
}

import FoundationEssentials
import SwiftASN1
import X509

extension DisplayText {
    /// Returns a DER `Name` by RFC 4514, safe to print on a terminal; its bytes in hexadecimal if it is malformed.
    package static func name(derEncoded der: [UInt8]) -> String {
        guard let node = try? DER.parse(der), let name = try? DistinguishedName(derEncoded: node) else {
            return "#" + der.hexEncoded
        }
        return name.rfc4514
    }
}

extension DistinguishedName {
    /// The name as an RFC 4514 string: most specific first, attribute types by their registered short names, values
    /// escaped. A value that is not text is `#` and its DER in hex (section 2.4).
    ///
    /// `description` of swift-certificates is not used: it prints values of the older string types (BMPString,
    /// TeletexString) as debugging text.
    var rfc4514: String {
        reversed().map { relativeName in
            relativeName.map { "\(Self.shortName(of: $0.type))=\(Self.escaped($0.value))" }.joined(separator: "+")
        }.joined(separator: ",")
    }

    private static func shortName(of type: ASN1ObjectIdentifier) -> String {
        shortNames[type] ?? String(describing: type)
    }

    static let shortNames: [ASN1ObjectIdentifier: String] = [
        [2, 5, 4, 3]: "CN", [2, 5, 4, 4]: "SN", [2, 5, 4, 5]: "serialNumber", [2, 5, 4, 6]: "C",
        [2, 5, 4, 7]: "L", [2, 5, 4, 8]: "ST", [2, 5, 4, 9]: "street", [2, 5, 4, 10]: "O",
        [2, 5, 4, 11]: "OU", [2, 5, 4, 12]: "title", [2, 5, 4, 15]: "businessCategory",
        [2, 5, 4, 17]: "postalCode", [2, 5, 4, 42]: "GN", [2, 5, 4, 43]: "initials",
        [2, 5, 4, 44]: "generationQualifier", [2, 5, 4, 46]: "dnQualifier", [2, 5, 4, 65]: "pseudonym",
        [2, 5, 4, 97]: "organizationIdentifier", [0, 9, 2342, 19_200_300, 100, 1, 1]: "UID",
        [0, 9, 2342, 19_200_300, 100, 1, 25]: "DC", [1, 2, 840, 113549, 1, 9, 1]: "emailAddress",
    ]

    private static func escaped(_ value: RelativeDistinguishedName.Attribute.Value) -> String {
        guard let text = text(of: value) else {
            let der = (try? serialized(ASN1Any(value))) ?? []
            return "#" + der.hexEncoded
        }
        var result = ""
        for (offset, scalar) in text.unicodeScalars.enumerated() {
            switch scalar {
            case ",", "+", "\"", "\\", "<", ">", ";":
                result += "\\"
                result.unicodeScalars.append(scalar)
            case " " where offset == 0 || offset == text.unicodeScalars.count - 1, "#" where offset == 0:
                result += "\\"
                result.unicodeScalars.append(scalar)
            case _ where scalar.isControl:
                // Not demanded by the RFC except for NUL; a name must not be able to steer a terminal.
                result += String(scalar).utf8.map { "\\" + [$0].hexEncoded }.joined()
            default:
                result.unicodeScalars.append(scalar)
            }
        }
        return result
    }

    private static func serialized(_ value: ASN1Any) throws -> [UInt8] {
        var serializer = DER.Serializer()
        try serializer.serialize(value)
        return serializer.serializedBytes
    }

    /// Returns the values of an attribute, as text. Those that are not text are left out.
    func texts(of type: ASN1ObjectIdentifier) -> [String] {
        flatMap { relativeName in relativeName.filter { $0.type == type }.compactMap { Self.text(of: $0.value) } }
    }

    /// Decodes any of the ASN.1 string types that directories have used.
    static func text(of value: RelativeDistinguishedName.Attribute.Value) -> String? {
        if let string = String(value) { return string }
        guard let der = try? serialized(ASN1Any(value)), let node = try? DER.parse(der),
            case .primitive(let bytes) = node.content
        else { return nil }
        switch node.identifier {
        case .bmpString:
            return bytes.count.isMultiple(of: 2) ? String(bytes: bytes, encoding: .utf16BigEndian) : nil
        case .universalString:
            return bytes.count.isMultiple(of: 4) ? String(bytes: bytes, encoding: .utf32BigEndian) : nil
        case .teletexString, .visibleString, .numericString, .printableString, .ia5String:
            // T.61 in theory; all known writers and readers use Latin-1.
            return String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
        case .utf8String:
            return String(validating: bytes, as: UTF8.self)
        default:
            return nil
        }
    }
}

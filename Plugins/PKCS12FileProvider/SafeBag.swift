import FoundationEssentials
import OpenSSLSupport
import SwiftASN1

/// One object of a `SafeContents` (RFC 7292, section 4.2).
///
///     SafeBag ::= SEQUENCE { bagId OBJECT IDENTIFIER, bagValue [0] EXPLICIT ANY, bagAttributes SET OPTIONAL }
struct SafeBag {
    let type: ASN1ObjectIdentifier
    let value: ASN1Node
    private(set) var friendlyName: String?
    private(set) var localKeyID: [UInt8]?

    init(berEncoded node: ASN1Node) throws {
        var attributes: ASN1Node?
        (type, value) = try BER.sequence(node, identifier: .sequence) { nodes in
            let type = try ASN1ObjectIdentifier(berEncoded: &nodes)
            let value = try nodes.required("bagValue").explicitContent(tagNumber: 0)
            attributes = nodes.next()
            return (type, value)
        }
        guard case .constructed(let list) = attributes?.content else { return }
        for attribute in list {
            // An attribute that cannot be read must not hide a key.
            guard let (type, value) = try? Self.attribute(attribute) else { continue }
            switch type {
            case .friendlyName: friendlyName = Self.text(value)
            case .localKeyID: localKeyID = (try? ASN1OctetString(berEncoded: value)).map { Array($0.bytes) }
            default: break
            }
        }
    }

    /// Reads `SEQUENCE { attrId, attrValues SET }`. Only the first value is used.
    private static func attribute(_ node: ASN1Node) throws -> (ASN1ObjectIdentifier, ASN1Node) {
        try BER.sequence(node, identifier: .sequence) { nodes in
            let type = try ASN1ObjectIdentifier(berEncoded: &nodes)
            guard case .constructed(let values) = try nodes.required("attrValues").content else {
                throw ASN1Error.invalidASN1Object(reason: "attrValues is not a SET")
            }
            var iterator = values.makeIterator()
            return (type, try iterator.required("attrValue"))
        }
    }

    /// Reads a BMPString as UTF-16, as tools write it. Removes the terminating NUL of some tools, which could not be
    /// given on a command line or in a property file.
    private static func text(_ node: ASN1Node) -> String? {
        guard node.identifier == .bmpString, case .primitive(let bytes) = node.content,
            var text = String(bytes: bytes, encoding: .utf16BigEndian)
        else { return nil }
        while text.unicodeScalars.last == "\0" { text.unicodeScalars.removeLast() }
        return text.isEmpty ? nil : text
    }
}

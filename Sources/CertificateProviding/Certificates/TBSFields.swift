import FoundationEssentials
import Glibc
import SwiftASN1
import X509

/// The fields of a `TBSCertificate` (RFC 5280, section 4.1.2), in their order.
struct TBSFields {
    let serialNumber: ArraySlice<UInt8>
    let issuer: ASN1Node
    let validity: (Date, Date)
    let subject: ASN1Node
    let publicKey: PublicKeyInfo
    let extensions: Certificate.Extensions

    init(_ nodes: inout ASN1NodeCollection.Iterator) throws {
        _ = try DER.optionalExplicitlyTagged(&nodes, tagNumber: 0, tagClass: .contextSpecific) { $0 }  // version
        let serialNumber = try nodes.required("serialNumber")
        guard serialNumber.identifier == .integer, case .primitive(let digits) = serialNumber.content else {
            throw ASN1Error.unexpectedFieldType(serialNumber.identifier)
        }
        self.serialNumber = digits
        _ = try nodes.required("signature")
        self.issuer = try nodes.required("issuer")
        self.validity = try DER.sequence(try nodes.required("validity"), identifier: .sequence) { nodes in
            (try Self.date(try nodes.required("notBefore")), try Self.date(try nodes.required("notAfter")))
        }
        self.subject = try nodes.required("subject")
        self.publicKey = try PublicKeyInfo(derEncoded: try nodes.required("subjectPublicKeyInfo"))

        var extensions: [ASN1ObjectIdentifier: Certificate.Extension] = [:]
        while let node = nodes.next() {
            // Skips issuerUniqueID [1] and subjectUniqueID [2].
            guard node.identifier == ASN1Identifier(tagWithNumber: 3, tagClass: .contextSpecific) else { continue }
            guard case .constructed(let children) = node.content else {
                throw ASN1Error.unexpectedFieldType(node.identifier)
            }
            var wrapped = children.makeIterator()
            guard case .constructed(let list) = try wrapped.required("extensions").content else {
                throw ASN1Error.unexpectedFieldType(node.identifier)
            }
            for element in list {
                guard let found = try? Self.usedExtension(element) else { continue }
                // A certificate must not repeat an extension; the first one counts here, and TLS peers reject the rest.
                if extensions[found.oid] == nil { extensions[found.oid] = found }
            }
        }
        self.extensions = try Certificate.Extensions(extensions.values)
    }

    /// The extensions that are read. Certificates may carry others that swift-certificates refuses.
    private static let usedExtensions: Set<ASN1ObjectIdentifier> = [
        .X509ExtensionID.subjectAlternativeName, .X509ExtensionID.subjectKeyIdentifier,
        .X509ExtensionID.authorityKeyIdentifier, .X509ExtensionID.keyUsage, .X509ExtensionID.extendedKeyUsage,
        .X509ExtensionID.basicConstraints,
    ]

    /// Reads an `Extension` (RFC 5280, section 4.1); `nil` for one that is not used.
    ///
    /// The parser of swift-certificates is not used: it refuses an explicit `critical FALSE`, which DER forbids but
    /// issuers write, and the BER forms of TRUE.
    private static func usedExtension(_ node: ASN1Node) throws -> Certificate.Extension? {
        try DER.sequence(node, identifier: .sequence) { nodes in
            let identifier = try ASN1ObjectIdentifier(derEncoded: &nodes)
            guard usedExtensions.contains(identifier) else {
                while nodes.next() != nil {}
                return nil
            }
            var value = try nodes.required("extnValue")
            var isCritical = false
            if value.identifier == .boolean {
                isCritical = try Bool(berEncoded: value)
                value = try nodes.required("extnValue")
            }
            return Certificate.Extension(
                oid: identifier, critical: isCritical, value: try ASN1OctetString(derEncoded: value).bytes)
        }
    }

    /// `Time` (RFC 5280, section 4.1.2.5): UTCTime to 2049, GeneralizedTime from 2050, both in UTC to the second.
    private static func date(_ node: ASN1Node) throws -> Date {
        var parts = tm()
        switch node.identifier {
        case .utcTime:
            let time = try UTCTime(derEncoded: node)
            (parts.tm_year, parts.tm_mon, parts.tm_mday) = (Int32(time.year), Int32(time.month), Int32(time.day))
            (parts.tm_hour, parts.tm_min, parts.tm_sec) =
                (Int32(time.hours), Int32(time.minutes), Int32(time.seconds))
        default:
            let time = try GeneralizedTime(derEncoded: node)
            (parts.tm_year, parts.tm_mon, parts.tm_mday) = (Int32(time.year), Int32(time.month), Int32(time.day))
            (parts.tm_hour, parts.tm_min, parts.tm_sec) =
                (Int32(time.hours), Int32(time.minutes), Int32(time.seconds))
        }
        parts.tm_year -= 1900
        parts.tm_mon -= 1
        return Date(timeIntervalSince1970: Double(timegm(&parts)))
    }
}

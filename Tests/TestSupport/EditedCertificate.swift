public import CertificateProviding
import SwiftASN1

extension X509Certificate {
    /// A field of a `TBSCertificate` of version 3 (RFC 5280, section 4.1), by its position.
    public enum Field: Int, Sendable {
        case serialNumber = 1
        case validity = 4
        case subject = 5
        case publicKey = 6
    }

    /// Returns the certificate with another DER element in place of a field. Its signature is worth nothing then.
    public func replacing(_ field: Field, with element: [UInt8]) throws -> X509Certificate {
        guard case .constructed(let parts) = try DER.parse(derRepresentation).content,
            let body = parts.first(where: { _ in true }), case .constructed(let fields) = body.content
        else { throw ASN1Error.invalidASN1Object(reason: "no certificate") }
        var elements = fields.map { Array($0.encodedBytes) }
        elements[field.rawValue] = element
        let rest = parts.dropFirst().flatMap { Array($0.encodedBytes) }
        return try X509Certificate(
            derRepresentation: Self.element(0x30, Self.element(0x30, elements.flatMap { $0 }) + rest))
    }

    /// Returns a DER element.
    public static func element(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        var (length, digits) = (content.count, [UInt8]())
        if length < 0x80 { return [tag, UInt8(length)] + content }
        while length > 0 {
            digits.insert(UInt8(length & 0xff), at: 0)
            length >>= 8
        }
        return [tag, 0x80 | UInt8(digits.count)] + digits + content
    }
}

/// A way in which CAs break the encoding that RFC 5280 demands.
public enum EncodingFault: String, Sendable, CaseIterable {
    case serialNumber, time, text

    /// The words of a message for it.
    public var words: String {
        switch self {
        case .serialNumber: "a serial number with a superfluous leading octet"
        case .time: "a time that is not in whole seconds and UTC"
        case .text: "a name that is marked as UTF-8, and is not"
        }
    }

    /// Returns a certificate with this fault.
    public func applied(to certificate: X509Certificate) throws -> X509Certificate {
        func element(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] { X509Certificate.element(tag, content) }
        switch self {
        case .serialNumber: return try certificate.replacing(.serialNumber, with: element(2, [0, 0, 1]))
        case .time:
            let times = element(0x17, Array("240101000000Z".utf8)) + element(0x18, Array("20500101000000.5Z".utf8))
            return try certificate.replacing(.validity, with: element(0x30, times))
        case .text:
            let name = element(0x31, element(0x30, element(6, [0x55, 4, 3]) + element(0x0c, [0x4d, 0xfc, 0x6c])))
            return try certificate.replacing(.subject, with: element(0x30, name))
        }
    }
}

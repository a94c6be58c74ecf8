import SwiftASN1
import X509

extension X509Certificate {
    /// The reason why a strict parser, such as BoringSSL's, refuses the encoding, as a clause without subject for a
    /// message; `nil` if the encoding has none of the known faults.
    ///
    /// ``init(derRepresentation:)`` is lenient, so that listings show what CAs have issued.
    package var encodingFault: String? {
        guard let root = try? DER.parse(derRepresentation), case .constructed(let parts) = root.content,
            let body = parts.first(where: { _ in true }), case .constructed(let fields) = body.content
        else { return nil }
        for field in fields {
            if field.identifier == .integer, case .primitive(let digits) = field.content,
                Self.hasSuperfluousOctet(digits)
            {
                return "has a serial number with a superfluous leading octet (X.690, section 8.3.2)"
            }
            // Skips the version and the extensions, which have encodings of their own.
            guard field.identifier.tagClass == .universal else { continue }
            if let fault = Self.fault(in: field) { return fault }
        }
        return nil
    }

    /// Looks through names and the validity.
    private static func fault(in node: ASN1Node) -> String? {
        switch node.content {
        case .constructed(let children):
            for child in children { if let fault = fault(in: child) { return fault } }
            return nil
        case .primitive(let bytes):
            let isWrong =
                switch node.identifier {
                case .utf8String: String(validating: bytes, as: UTF8.self) == nil
                case .generalizedTime: !isTime(bytes, digits: 14)
                case .utcTime: !isTime(bytes, digits: 12)
                default: false
                }
            guard isWrong else { return nil }
            return node.identifier == .utf8String
                ? "has a name that is marked as UTF-8, and is not"
                : "has a time that is not in whole seconds and UTC (RFC 5280, section 4.1.2.5)"
        }
    }

    /// Whether a time is digits and a `Z`.
    private static func isTime(_ bytes: ArraySlice<UInt8>, digits: Int) -> Bool {
        bytes.count == digits + 1 && bytes.last == UInt8(ascii: "Z")
            && bytes.dropLast().allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
    }

    /// Whether the first nine bits of an INTEGER are the same.
    private static func hasSuperfluousOctet(_ digits: ArraySlice<UInt8>) -> Bool {
        guard digits.count > 1, let first = digits.first else { return false }
        let next = digits[digits.startIndex + 1]
        return (first == 0 && next < 0x80) || (first == 0xff && next >= 0x80)
    }

    /// Whether the key usage, if present, permits signatures (RFC 5280, section 4.2.1.3).
    package var permitsSignatures: Bool { keyUsage?.digitalSignature ?? true }
}

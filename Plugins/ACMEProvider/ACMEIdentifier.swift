import CertificateProviding
import SwiftASN1

/// A name to be certified, as ACME and the certificate request have it.
struct ACMEIdentifier: Sendable {
    /// The type of the protocol's registry, such as `dns` (RFC 8555, section 9.7.7).
    let type: String
    /// The value in the protocol.
    let value: String
    /// The name in the certificate request.
    let alternativeName: AlternativeName
    /// Whether it was written as `hardware-module:OID:SERIAL`.
    private(set) var isInFormerForm = false

    var isWildcard: Bool { type == "dns" && value.hasPrefix("*.") }

    /// The value that is proven: that of a wildcard is its domain (RFC 8555, section 7.1.4).
    var provenValue: String { String(value.dropFirst(isWildcard ? 2 : 0)) }

    /// Whether an authorisation is for this name. By bytes: Unicode has other letters that are equal to those of ASCII, or become them in
    /// lower case.
    func isProven(by authorization: ACMEAuthorization) -> Bool {
        let other = authorization.identifier
        func isSame(_ one: some Sequence<UInt8>, _ other: some Sequence<UInt8>) -> Bool { one.elementsEqual(other) }
        guard isSame(other.type.utf8, type.utf8) else { return false }
        switch type {
        case "dns":
            let its = other.value.utf8.map { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains($0) ? $0 | 0x20 : $0 }
            return isSame(its, provenValue.utf8) || isSame(its, value.utf8)
        // Servers write an address in another form.
        case "ip": return (try? AlternativeName("ip:\(other.value)")) == alternativeName
        default: return isSame(other.value.utf8, value.utf8)
        }
    }

    /// Reads names that are separated by commas.
    ///
    /// - Throws: `malformedData`, with the name.
    static func list(_ text: String) throws(ProviderError) -> [ACMEIdentifier] {
        let names = try text.split(separator: ",").map { String($0.trimming) }.filter { !$0.isEmpty }
            .map { name throws(ProviderError) in try ACMEIdentifier(name) }
        guard !names.isEmpty else { throw refusal(text, "at least one name is needed, such as dns:host.example") }
        // A server counts a name that is given twice as two.
        var seen: Set<[String]> = []
        return names.filter { seen.insert([$0.type, $0.value]).inserted }
    }

    private init(_ text: String) throws(ProviderError) {
        guard let colon = text.firstIndex(of: ":") else { throw Self.refusal(text, "write \(Self.kinds) before it") }
        let value = String(text[text.index(after: colon)...])
        switch text[..<colon].lowercased() {
        case "dns":
            let name = value.lowercased()
            alternativeName = try AlternativeName("dns:\(name)")
            (type, self.value) = ("dns", name)
            guard !name.dropFirst(name.hasPrefix("*.") ? 2 : 0).contains("*") else {
                throw Self.refusal(text, "only the first label may be *")
            }
        case "ip":
            alternativeName = try AlternativeName("ip:\(value)")
            // In the canonical form (RFC 8738, section 3).
            (type, self.value) = ("ip", String(alternativeName.description.dropFirst(3)))
        case "permanent-identifier":
            let parts = value.split(separator: "/", omittingEmptySubsequences: false).map(String.init)
            let assigner = parts.count == 2 ? Self.objectIdentifier(parts[1]) : nil
            guard !parts[0].isEmpty, parts.count == 1 || assigner != nil else {
                throw Self.refusal(text, "write permanent-identifier:VALUE or VALUE/OID, with the OID of its assigner")
            }
            (type, self.value) = ("permanent-identifier", assigner.map { "\(parts[0])/\($0)" } ?? value)
            alternativeName = try Self.encoded(text, [1, 3, 6, 1, 5, 5, 7, 8, 3]) { serializer in
                try serializer.serialize(ASN1UTF8String(parts[0]))
                if let assigner { try serializer.serialize(assigner) }
            }
        case "hardware-module":
            isInFormerForm = !value.contains("/")
            let parts = value.split(
                separator: isInFormerForm ? ":" : "/", maxSplits: isInFormerForm ? 1 : .max,
                omittingEmptySubsequences: false
            ).map(String.init)
            let (serial, type) = isInFormerForm ? (parts.last, parts.first) : (parts.first, parts.last)
            guard parts.count == 2, let serial, !serial.isEmpty, let hardware = Self.objectIdentifier(type ?? "") else {
                throw Self.refusal(text, "write hardware-module:SERIAL/OID, with the OID of the type of hardware")
            }
            (self.type, self.value) = ("hardware-module", "\(serial)/\(hardware)")
            alternativeName = try Self.encoded(text, [1, 3, 6, 1, 5, 5, 7, 8, 4]) { serializer in
                try serializer.serialize(hardware)
                try serializer.serialize(ASN1OctetString(contentBytes: Array(serial.utf8)[...]))
            }
        default: throw Self.refusal(text, "the kinds are \(Self.kinds)")
        }
    }

    /// A permanentIdentifier (RFC 4043) or a hardwareModuleName (RFC 4108, section 5).
    private static func encoded(
        _ text: String, _ type: ASN1ObjectIdentifier, _ content: (inout DER.Serializer) throws -> Void
    ) throws(ProviderError) -> AlternativeName {
        do {
            var serializer = DER.Serializer()
            try serializer.appendConstructedNode(identifier: .sequence, content)
            return .other(type, serializer.serializedBytes)
        } catch {
            throw refusal(text, "it cannot be encoded")
        }
    }

    private static func objectIdentifier(_ text: String) -> ASN1ObjectIdentifier? {
        text.contains(".") ? try? ASN1ObjectIdentifier(dotRepresentation: text[...]) : nil
    }

    private static let kinds = "dns:, ip:, permanent-identifier: or hardware-module:"

    private static func refusal(_ text: String, _ reason: String) -> ProviderError {
        ProviderError(
            .malformedData, "'\(DisplayText.visible(text))' is not a valid identifier: \(reason).")
    }
}

extension ACMEIdentifier: CustomStringConvertible {
    var description: String { "\(type):\(DisplayText.visible(value))" }
}

import CertificateProviding
import SwiftASN1

/// A name to be certified, as ACME and the certificate request have it.
struct ACMEIdentifier: Sendable, Hashable {
    /// The type of the protocol's registry, such as `dns` (RFC 8555, section 9.7.7).
    let type: String
    /// The value in the protocol.
    let value: String
    /// The name in the certificate request.
    let alternativeName: AlternativeName

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
        var seen: Set<ACMEIdentifier> = []
        return names.filter { seen.insert($0).inserted }
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
            guard !value.isEmpty else { throw Self.refusal(text, "the identifier is missing") }
            (type, self.value) = ("permanent-identifier", value)
            alternativeName = try Self.encoded(text, [1, 3, 6, 1, 5, 5, 7, 8, 3]) { serializer in
                try serializer.serialize(ASN1UTF8String(value))
            }
        case "hardware-module":
            let parts = value.split(separator: ":", maxSplits: 1)
            guard parts.count == 2, let hardware = try? ASN1ObjectIdentifier(dotRepresentation: parts[0]) else {
                throw Self.refusal(text, "write hardware-module:OID:SERIAL, with the object identifier of the hardware")
            }
            (type, self.value) = ("hardware-module", String(parts[1]))
            alternativeName = try Self.encoded(text, [1, 3, 6, 1, 5, 5, 7, 8, 4]) { serializer in
                try serializer.serialize(hardware)
                try serializer.serialize(ASN1OctetString(contentBytes: Array(parts[1].utf8)[...]))
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

    private static let kinds = "dns:, ip:, permanent-identifier: or hardware-module:"

    private static func refusal(_ text: String, _ reason: String) -> ProviderError {
        ProviderError(
            .malformedData, "'\(DisplayText.visible(text))' is not a valid identifier: \(reason).")
    }
}

extension ACMEIdentifier: CustomStringConvertible {
    var description: String { "\(type):\(DisplayText.visible(value))" }
}

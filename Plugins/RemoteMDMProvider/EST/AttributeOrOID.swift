import CertificateProviding
import SwiftASN1

/// `AttrOrOID` (RFC 7030, section 4.5.2).
struct AttributeOrOID: DERParseable {
    let identifier: ASN1ObjectIdentifier
    var values: [ASN1Node] = []

    init(derEncoded node: ASN1Node) throws {
        if node.identifier == .objectIdentifier {
            identifier = try ASN1ObjectIdentifier(derEncoded: node)
            return
        }
        (identifier, values) = try DER.sequence(node, identifier: .sequence) { fields in
            let identifier = try ASN1ObjectIdentifier(derEncoded: &fields)
            var values: [ASN1Node] = []
            while let field = fields.next() { values += (try? field.children) ?? [] }
            return (identifier, values)
        }
    }

    enum Key: Equatable {
        case known(KeyType)
        /// By its usual name.
        case unknown(String)
    }

    /// The key type that the attribute names; `nil` if it names none.
    var key: Key? {
        switch identifier {
        case [1, 2, 840, 10045, 2, 1]:
            let curves = values.compactMap { try? ASN1ObjectIdentifier(derEncoded: $0) }
            if let known = curves.lazy.compactMap({ Self.curves[$0] }).first { return .known(known) }
            return curves.first.map { .unknown("EC on the curve \(Self.otherCurves[$0] ?? "\($0)")") }
        case [1, 2, 840, 113549, 1, 1, 1]:
            let sizes = values.compactMap { try? Int(derEncoded: $0) }
            if let known = sizes.lazy.compactMap({ KeyType(rawValue: "rsa\($0)") }).first { return .known(known) }
            return values.isEmpty ? .known(.rsa2048) : .unknown("RSA \(sizes.first.map(String.init) ?? "")")
        case [1, 3, 101, 112]: return .known(.ed25519)
        default: return Self.otherKeys[identifier].map { .unknown($0) }
        }
    }

    private static let curves: [ASN1ObjectIdentifier: KeyType] = [
        [1, 2, 840, 10045, 3, 1, 7]: .p256, [1, 3, 132, 0, 34]: .p384, [1, 3, 132, 0, 35]: .p521,
    ]
    private static let otherCurves: [ASN1ObjectIdentifier: String] = [
        [1, 3, 132, 0, 10]: "secp256k1", [1, 3, 36, 3, 3, 2, 8, 1, 1, 7]: "brainpoolP256r1",
        [1, 3, 36, 3, 3, 2, 8, 1, 1, 11]: "brainpoolP384r1", [1, 3, 36, 3, 3, 2, 8, 1, 1, 13]: "brainpoolP512r1",
    ]
    private static let otherKeys: [ASN1ObjectIdentifier: String] = [
        [1, 3, 101, 113]: "Ed448", [1, 2, 840, 10040, 4, 1]: "DSA", [2, 16, 840, 1, 101, 3, 4, 3, 17]: "ML-DSA-44",
        [2, 16, 840, 1, 101, 3, 4, 3, 18]: "ML-DSA-65", [2, 16, 840, 1, 101, 3, 4, 3, 19]: "ML-DSA-87",
    ]
}

extension ASN1Node {
    /// The elements of a sequence or set.
    var children: [ASN1Node] {
        get throws {
            guard case .constructed(let children) = content else {
                throw ASN1Error.unexpectedFieldType(identifier)
            }
            return Array(children)
        }
    }
}

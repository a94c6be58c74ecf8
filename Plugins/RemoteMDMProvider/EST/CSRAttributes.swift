import CertificateProviding
import SwiftASN1

/// What a server wants to see in a request (RFC 7030, section 4.5.2).
struct CSRAttributes: Sendable, Equatable {
    /// Whether the request is to be bound to its connection (RFC 7030, section 3.5).
    var wantsBinding = false
    /// The kind of key.
    var keyType: KeyType?
    /// What is not understood, as dotted numbers; the server may refuse a request without it.
    var others: [String] = []

    static let challengePassword: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 9, 7]

    init() {}

    /// - Throws: `protocolError`.
    init(derRepresentation bytes: [UInt8]) throws(CertificateProviderError) {
        do {
            let nodes = try DER.sequence(of: AttributeOrOID.self, identifier: .sequence, rootNode: try DER.parse(bytes))
            for node in nodes { note(node) }
        } catch {
            throw CertificateProviderError(
                .protocolError, "What the server wants in requests (csrattrs) cannot be read: it is damaged.",
                underlying: error)
        }
    }

    private mutating func note(_ item: AttributeOrOID) {
        switch item.identifier {
        case Self.challengePassword: wantsBinding = true
        case [1, 2, 840, 10045, 2, 1]:
            keyType = item.curves.lazy.compactMap { Self.curves[$0] }.first
        case [1, 2, 840, 113549, 1, 1, 1]:
            keyType = item.numbers.first.flatMap { KeyType(rawValue: "rsa\($0)") } ?? .rsa2048
        case [1, 3, 101, 112]: keyType = .ed25519
        default: others.append("\(item.identifier)")
        }
    }

    private static let curves: [ASN1ObjectIdentifier: KeyType] = [
        [1, 2, 840, 10045, 3, 1, 7]: .p256, [1, 3, 132, 0, 34]: .p384, [1, 3, 132, 0, 35]: .p521,
    ]
}

/// `AttrOrOID`.
private struct AttributeOrOID: DERParseable {
    let identifier: ASN1ObjectIdentifier
    var curves: [ASN1ObjectIdentifier] = []
    var numbers: [Int] = []

    init(derEncoded node: ASN1Node) throws {
        if node.identifier == .objectIdentifier {
            identifier = try ASN1ObjectIdentifier(derEncoded: node)
            return
        }
        (identifier, curves, numbers) = try DER.sequence(node, identifier: .sequence) { fields in
            let identifier = try ASN1ObjectIdentifier(derEncoded: &fields)
            var curves: [ASN1ObjectIdentifier] = []
            var numbers: [Int] = []
            while let field = fields.next() {
                guard case .constructed(let values) = field.content else { continue }
                for value in values {
                    if let curve = try? ASN1ObjectIdentifier(derEncoded: value) { curves.append(curve) }
                    if let number = try? Int(derEncoded: value) { numbers.append(number) }
                }
            }
            return (identifier, curves, numbers)
        }
    }
}

import Foundation
import SwiftASN1
import X509

/// A certificate revocation list (RFC 5280, section 5), complete and issued by the CA itself.
///
/// NIOSSL and swift-certificates read no such lists.
struct RevocationList: Sendable {
    let issuer: DistinguishedName
    let nextUpdate: Date?
    private let revoked: Set<[UInt8]>
    private let signedBytes: [UInt8]
    private let signature: [UInt8]
    private let algorithm: Certificate.SignatureAlgorithm

    func revokes(_ serialNumber: Certificate.SerialNumber) -> Bool { revoked.contains(Array(serialNumber.bytes)) }

    func isSigned(by authority: Certificate) -> Bool {
        authority.subject == issuer
            && authority.publicKey.isValidSignature(signature, for: signedBytes, signatureAlgorithm: algorithm)
    }

    /// Reads the lists in a PEM file.
    static func load(pemFile path: String) throws -> [Self] {
        let documents = try PEMDocument.parseMultiple(pemString: ConfigurationError.text(ofFile: path))
        return try documents.filter { $0.discriminator == "X509 CRL" }.map { try Self(derEncoded: $0.derBytes) }
    }

    init(derEncoded bytes: [UInt8]) throws {
        let list: (tbs: ASN1Node, algorithm: ASN1ObjectIdentifier, signature: ASN1BitString) = try DER.sequence(
            try DER.parse(bytes), identifier: .sequence
        ) { nodes in
            guard let tbs = nodes.next(), let algorithm = nodes.next() else {
                throw ConfigurationError("The list is incomplete.")
            }
            return (tbs, try Self.algorithm(algorithm), try ASN1BitString(derEncoded: &nodes))
        }
        guard let algorithm = Self.algorithms[list.algorithm] else {
            throw ConfigurationError("The signature algorithm \(list.algorithm) is not supported.")
        }
        self.algorithm = algorithm
        signature = Array(list.signature.bytes)
        signedBytes = Array(list.tbs.encodedBytes)
        (issuer, nextUpdate, revoked) = try DER.sequence(list.tbs, identifier: .sequence) { nodes in
            // Version 1 has no version field.
            guard let first = nodes.next(), let second = first.identifier == .integer ? nodes.next() : first,
                try Self.algorithm(second) == list.algorithm
            else {
                throw ConfigurationError("The list names two signature algorithms.")
            }
            guard let name = nodes.next(), let thisUpdate = nodes.next() else {
                throw ConfigurationError("The list has no issuer or no date.")
            }
            let issuer = try DistinguishedName(derEncoded: name)
            _ = try Self.date(thisUpdate)
            var next = nodes.next()
            var nextUpdate: Date?
            if let node = next, [.utcTime, .generalizedTime].contains(node.identifier) {
                nextUpdate = try Self.date(node)
                next = nodes.next()
            }
            var revoked: Set<[UInt8]> = []
            if let node = next, node.identifier == .sequence {
                revoked = try Self.serialNumbers(node)
                next = nodes.next()
            }
            // A critical extension changes the list's meaning: a delta, or a list for a part of the certificates.
            if let node = next {
                let extensions = try DER.explicitlyTagged(node, tagNumber: 0, tagClass: .contextSpecific) { inner in
                    try DER.sequence(of: Certificate.Extension.self, identifier: .sequence, rootNode: inner)
                }
                if let critical = extensions.first(where: \.critical) {
                    throw ConfigurationError("The critical extension \(critical.oid) is not supported.")
                }
            }
            return (issuer, nextUpdate, revoked)
        }
    }

    private static let algorithms: [ASN1ObjectIdentifier: Certificate.SignatureAlgorithm] = [
        [1, 2, 840, 113_549, 1, 1, 11]: .sha256WithRSAEncryption,
        [1, 2, 840, 113_549, 1, 1, 12]: .sha384WithRSAEncryption,
        [1, 2, 840, 113_549, 1, 1, 13]: .sha512WithRSAEncryption,
        [1, 2, 840, 10045, 4, 3, 2]: .ecdsaWithSHA256,
        [1, 2, 840, 10045, 4, 3, 3]: .ecdsaWithSHA384,
        [1, 2, 840, 10045, 4, 3, 4]: .ecdsaWithSHA512,
        [1, 3, 101, 112]: .ed25519,
    ]

    private static func algorithm(_ node: ASN1Node) throws -> ASN1ObjectIdentifier {
        try DER.sequence(node, identifier: .sequence) { inner in
            let identifier = try ASN1ObjectIdentifier(derEncoded: &inner)
            // Parameters, NULL with RSA.
            _ = inner.next()
            return identifier
        }
    }

    private static func serialNumbers(_ node: ASN1Node) throws -> Set<[UInt8]> {
        var numbers: Set<[UInt8]> = []
        try DER.sequence(node, identifier: .sequence) { entries in
            while let entry = entries.next() {
                try DER.sequence(entry, identifier: .sequence) { fields in
                    let number = try Certificate.SerialNumber(bytes: ArraySlice<UInt8>(derEncoded: &fields))
                    numbers.insert(Array(number.bytes))
                    while fields.next() != nil {}
                }
            }
        }
        return numbers
    }

    private static func date(_ node: ASN1Node) throws -> Date {
        let time: (Int, Int, Int, Int, Int, Int)
        if node.identifier == .utcTime {
            let utc = try UTCTime(derEncoded: node)
            time = (utc.year, utc.month, utc.day, utc.hours, utc.minutes, utc.seconds)
        } else {
            let general = try GeneralizedTime(derEncoded: node)
            time = (general.year, general.month, general.day, general.hours, general.minutes, general.seconds)
        }
        var calendar = Calendar(identifier: .gregorian)
        calendar.timeZone = .gmt
        let components = DateComponents(
            year: time.0, month: time.1, day: time.2, hour: time.3, minute: time.4, second: time.5)
        guard let date = calendar.date(from: components) else { throw ConfigurationError("A date is malformed.") }
        return date
    }
}

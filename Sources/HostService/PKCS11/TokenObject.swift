import CertificateProviding
import Crypto
import FoundationEssentials
import SwiftASN1

/// An object of the token: a certificate, or a key of an identity.
struct TokenObject: Sendable {
    /// `CKA_CLASS`.
    enum Kind: UInt64 { case certificate = 1, publicKey, privateKey }

    /// The same for an object each time that the token is looked at.
    struct ID: Hashable {
        let kind: Kind
        let label: String
        /// The certificate or the public key, DER.
        let content: [UInt8]
    }

    let kind: Kind
    let label: String
    let certificate: X509Certificate
    /// `nil` for the certificate of an issuer.
    let identity: Identity?
    /// Whether a newer identity of this name is in use.
    var isReplaced = false

    var id: ID {
        ID(
            kind: kind, label: label,
            content: kind == .certificate ? certificate.derRepresentation : certificate.publicKey.derRepresentation)
    }

    /// The objects of identities: of each the current one first, then those that it has replaced. The issuers are last.
    static func objects(of served: [ServedIdentity]) -> [TokenObject] {
        var objects: [TokenObject] = []
        for one in served {
            for (index, identity) in one.identities.enumerated() {
                for kind in [Kind.certificate, .publicKey, .privateKey] {
                    objects.append(
                        TokenObject(
                            kind: kind, label: one.name, certificate: identity.certificate, identity: identity,
                            isReplaced: index > 0))
                }
            }
        }
        for issuer in served.flatMap(\.identities).flatMap({ $0.certificateChain.dropFirst() }) {
            let label = issuer.commonNames.last ?? issuer.displayName
            objects.append(TokenObject(kind: .certificate, label: label, certificate: issuer, identity: nil))
        }
        var known: Set<ID> = []
        return objects.filter { known.insert($0.id).inserted }
    }

    /// Whether the object has these attributes. A value that the caller may not see matches nothing.
    ///
    /// A replaced object is found by its identifier alone, for processes that look for a key again after a fork. By the name a
    /// program could find certificate and key of two generations: libp11 takes the last key of a name, GnuTLS the first.
    func matches(_ template: [(type: AttributeType, value: AttributeValue?)]) -> Bool {
        (!isReplaced || template.contains { $0.type == .id })
            && template.allSatisfy { attribute in
                guard let value = attribute.value else { return false }
                return (try? self.value(of: attribute.type)) == value
            }
    }

    /// Returns the value of an attribute.
    ///
    /// - Throws: `CKR_ATTRIBUTE_SENSITIVE` for the parts of a private key, `CKR_ATTRIBUTE_TYPE_INVALID`.
    func value(of type: AttributeType) throws(ReturnCode) -> AttributeValue {
        switch type {
        case .objectClass: return .number(kind.rawValue)
        case .token: return .flag(true)
        case .isPrivate, .modifiable, .copyable: return .flag(false)
        case .label: return .bytes(Array(label.utf8))
        case .id: return .bytes(Array(Insecure.SHA1.hash(data: certificate.publicKey.derRepresentation)))
        case .subject: return .bytes(certificate.subjectDER)
        case .publicKeyInfo: return .bytes(certificate.publicKey.derRepresentation)
        default: break
        }
        let value =
            switch kind {
            case .certificate: certificateValue(type)
            case .publicKey: publicKeyValue(type)
            case .privateKey: try privateKeyValue(type)
            }
        guard let value else { throw .attributeTypeInvalid }
        return value
    }

    private func certificateValue(_ type: AttributeType) -> AttributeValue? {
        switch type {
        case .value: .bytes(certificate.derRepresentation)
        // X.509, of the owner of the token or of an authority.
        case .certificateType: .number(0)
        case .certificateCategory: .number(identity == nil ? 2 : 1)
        case .trusted: .flag(false)
        case .issuer: .bytes(certificate.issuerDER)
        case .serialNumber: .bytes(Self.der(.integer, certificate.serialNumber))
        case .startDate: .bytes(Self.date(certificate.notValidBefore))
        case .endDate: .bytes(Self.date(certificate.notValidAfter))
        default: nil
        }
    }

    private func publicKeyValue(_ type: AttributeType) -> AttributeValue? {
        switch type {
        case .verify: .flag(true)
        case .trusted, .encrypt, .wrap, .verifyRecover: .flag(false)
        default: keyValue(type)
        }
    }

    private func privateKeyValue(_ type: AttributeType) throws(ReturnCode) -> AttributeValue? {
        if type.isOfSecret { throw .attributeSensitive }
        return switch type {
        case .sign: .flag(!mechanisms.isEmpty)
        case .sensitive: .flag(true)
        // A file may have had the key.
        case .alwaysSensitive, .neverExtractable: .flag(identity?.key.exporter == nil)
        case .extractable, .decrypt, .unwrap, .signRecover, .alwaysAuthenticate, .wrapWithTrusted: .flag(false)
        default: keyValue(type)
        }
    }

    /// An attribute of both keys.
    private func keyValue(_ type: AttributeType) -> AttributeValue? {
        let key = certificate.publicKey
        switch (type, key.algorithm) {
        case (.keyType, .rsa): return .number(0)
        case (.keyType, .ec): return .number(3)
        case (.keyType, .ed25519): return .number(0x40)
        case (.derive, _), (.local, _): return .flag(false)
        case (.startDate, _), (.endDate, _): return .bytes([])
        case (.modulus, .rsa): return key.rsaModulus.map { .bytes($0) }
        case (.modulusBits, .rsa): return .number(UInt64(key.bits))
        case (.publicExponent, .rsa): return key.rsaExponent.map { .bytes($0) }
        case (.ecParameters, .ec), (.ecParameters, .ed25519): return key.curveParameters.map { .bytes($0) }
        case (.ecPoint, .ec), (.ecPoint, .ed25519): return .bytes(Self.der(.octetString, key.keyBits))
        default: return nil
        }
    }

    /// A primitive value of at most 65535 bytes.
    private static func der(_ tag: ASN1Identifier, _ content: [UInt8]) -> [UInt8] {
        var serializer = DER.Serializer()
        serializer.appendPrimitiveNode(identifier: tag) { $0 += content }
        return serializer.serializedBytes
    }

    /// A `CK_DATE`: eight digits.
    private static func date(_ date: Date) -> [UInt8] {
        Array(date.formatted(.iso8601.year().month().day().dateSeparator(.omitted)).utf8)
    }
}

extension PublicKeyInfo {
    /// The public exponent of an RSA key (RFC 8017, appendix A.1.1), big-endian without leading zeros.
    fileprivate var rsaExponent: [UInt8]? {
        try? DER.sequence(try DER.parse(keyBits), identifier: .sequence) { nodes in
            _ = try ArraySlice<UInt8>(derEncoded: &nodes)
            return Array(try ArraySlice<UInt8>(derEncoded: &nodes).drop { $0 == 0 })
        }
    }

    /// `CKA_EC_PARAMS`: the curve, DER. Of Ed25519 its object identifier (RFC 8410).
    fileprivate var curveParameters: [UInt8]? {
        let fields = try? DER.sequence(try DER.parse(derRepresentation), identifier: .sequence) { nodes in
            let algorithm = nodes.next()
            while nodes.next() != nil {}
            return algorithm
        }
        guard case .constructed(let parts) = fields?.content else { return nil }
        // The last one of algorithm and parameters.
        return parts.reduce(nil as ASN1Node?) { $1 }.map { Array($0.encodedBytes) }
    }
}

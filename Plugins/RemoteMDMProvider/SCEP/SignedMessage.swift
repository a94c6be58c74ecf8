import CertificateProviding
import Crypto
import OpenSSLSupport
import SwiftASN1

/// A SignedData (RFC 5652, section 5), signed by an ``IdentityKey``: OpenSSL signs only with keys that it holds.
enum SignedMessage {
    private static let data: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 7, 1]
    private static let signedData: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 7, 2]
    private static let contentType = "1.2.840.113549.1.9.3"
    private static let messageDigest = "1.2.840.113549.1.9.4"
    private static let rsaEncryption: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 1, 1]

    /// - Parameters:
    ///   - certificate: The certificate of the signer's RSA key, DER; it is part of the message.
    ///   - digest: By its OpenSSL name: SHA256 or SHA512.
    static func encoded(
        _ content: [UInt8], attributes: [CMSAttribute], certificate: [UInt8], key: any IdentityKey, digest: String
    ) async throws(CertificateProviderError) -> [UInt8] {
        let algorithm: ASN1ObjectIdentifier
        let (scheme, hash): (SignatureScheme, [UInt8])
        if digest == "SHA512" {
            algorithm = [2, 16, 840, 1, 101, 3, 4, 2, 3]
            (scheme, hash) = (.rsaPKCS1SHA512, Array(SHA512.hash(data: content)))
        } else {
            algorithm = [2, 16, 840, 1, 101, 3, 4, 2, 1]
            (scheme, hash) = (.rsaPKCS1SHA256, Array(SHA256.hash(data: content)))
        }
        do {
            let signer = try issuerAndSerialNumber(of: certificate)
            var signed = try attributes.map { try encoded($0) }
            signed.append(try attribute(contentType) { try $0.serialize(data) })
            signed.append(try encoded(CMSAttribute(messageDigest, .octetString(hash))))
            signed.sort { $0.lexicographicallyPrecedes($1) }
            // The signature covers a SET, and the message has another tag (section 5.4).
            let signature = try await key.signature(for: set(signed, .set), using: scheme)

            return try sequence { message in
                try message.serialize(signedData)
                try message.appendConstructedNode(identifier: tag(0)) { message in
                    try message.appendConstructedNode(identifier: .sequence) { message in
                        try message.serialize(1)
                        try message.appendConstructedNode(identifier: .set) { try $0.serialize(algorithm: algorithm) }
                        try message.appendConstructedNode(identifier: .sequence) { message in
                            try message.serialize(data)
                            try message.appendConstructedNode(identifier: tag(0)) {
                                try $0.serialize(ASN1OctetString(contentBytes: content[...]))
                            }
                        }
                        message.appendConstructedNode(identifier: tag(0)) { $0.serializeRawBytes(certificate) }
                        try message.appendConstructedNode(identifier: .set) { infos in
                            try infos.appendConstructedNode(identifier: .sequence) { info in
                                try info.serialize(1)
                                info.serializeRawBytes(signer)
                                try info.serialize(algorithm: algorithm)
                                info.serializeRawBytes(set(signed, tag(0)))
                                // As OpenSSL writes it, and every CA reads it.
                                try info.serialize(algorithm: rsaEncryption)
                                try info.serialize(ASN1OctetString(contentBytes: signature[...]))
                            }
                        }
                    }
                }
            }
        } catch let error as CertificateProviderError {
            throw error
        } catch {
            throw CertificateProviderError(.internal, "The SCEP message cannot be written.", underlying: error)
        }
    }

    private static func tag(_ number: UInt) -> ASN1Identifier {
        ASN1Identifier(tagWithNumber: number, tagClass: .contextSpecific)
    }

    private static func issuerAndSerialNumber(of certificate: [UInt8]) throws -> [UInt8] {
        try DER.sequence(DER.parse(certificate), identifier: .sequence) { nodes in
            guard let fields = nodes.next() else { throw ASN1Error.invalidASN1Object(reason: "no certificate") }
            while nodes.next() != nil {}
            return try DER.sequence(fields, identifier: .sequence) { nodes in
                var fields: [ASN1Node] = []
                while let field = nodes.next() { fields.append(field) }
                // A version 1 certificate does not say so.
                if fields.first?.identifier == tag(0) { fields.removeFirst() }
                guard fields.count > 2 else { throw ASN1Error.invalidASN1Object(reason: "no issuer") }
                return try sequence { coder in
                    coder.serializeRawBytes(fields[2].encodedBytes)
                    coder.serializeRawBytes(fields[0].encodedBytes)
                }
            }
        }
    }

    private static func encoded(_ attribute: CMSAttribute) throws -> [UInt8] {
        try Self.attribute(attribute.type) { value in
            switch attribute.value {
            case .printableString(let text): try value.serialize(ASN1PrintableString(text))
            case .utf8String(let text): try value.serialize(ASN1UTF8String(text))
            case .octetString(let bytes): try value.serialize(ASN1OctetString(contentBytes: bytes[...]))
            }
        }
    }

    private static func attribute(_ type: String, _ value: (inout DER.Serializer) throws -> Void) throws -> [UInt8] {
        try sequence { coder in
            try coder.serialize(ASN1ObjectIdentifier(dotRepresentation: type))
            try coder.appendConstructedNode(identifier: .set) { try value(&$0) }
        }
    }

    private static func set(_ elements: [[UInt8]], _ identifier: ASN1Identifier) -> [UInt8] {
        var serializer = DER.Serializer()
        serializer.appendConstructedNode(identifier: identifier) { coder in
            for element in elements { coder.serializeRawBytes(element) }
        }
        return serializer.serializedBytes
    }

    private static func sequence(_ content: (inout DER.Serializer) throws -> Void) throws -> [UInt8] {
        var serializer = DER.Serializer()
        try serializer.appendConstructedNode(identifier: .sequence) { try content(&$0) }
        return serializer.serializedBytes
    }
}

extension DER.Serializer {
    /// An AlgorithmIdentifier with the parameter NULL.
    fileprivate mutating func serialize(algorithm: ASN1ObjectIdentifier) throws {
        try appendConstructedNode(identifier: .sequence) { coder in
            try coder.serialize(algorithm)
            try coder.serialize(ASN1Null())
        }
    }
}

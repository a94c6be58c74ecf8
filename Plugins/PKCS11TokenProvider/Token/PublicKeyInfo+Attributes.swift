import CP11Kit
import CertificateProviding
import SwiftASN1

/// Public keys of the attributes that public key objects have (PKCS#11, sections 2.1, 2.3 and 6.5).
extension PublicKeyInfo {
    /// An RSA key of `CKA_MODULUS` and `CKA_PUBLIC_EXPONENT`.
    init?(modulus: [UInt8], exponent: [UInt8]) {
        self.init([1, 2, 840, 113549, 1, 1, 1], parameters: [5, 0]) { serializer in
            serializer.appendConstructedNode(identifier: .sequence) { coder in
                for number in [modulus, exponent] {
                    coder.appendPrimitiveNode(identifier: .integer) { bytes in
                        let magnitude = number.drop { $0 == 0 }
                        // DER's integers have a sign.
                        if magnitude.first.map({ $0 >= 0x80 }) ?? true { bytes.append(0) }
                        bytes += magnitude
                    }
                }
            }
        }
    }

    /// An EC key of `CKA_EC_PARAMS` and `CKA_EC_POINT`.
    init?(curve parameters: [UInt8], point: [UInt8]) {
        // The standard wants the point as a DER OCTET STRING; some modules give it as it is. Told by the length, since
        // a point begins like an OCTET STRING. Of P-256, P-384 and P-521: uncompressed, then compressed.
        let content = Self.octets(of: point)
        let raw = content.flatMap { [65, 97, 133, 33, 49, 67].contains($0.count) ? $0 : nil } ?? point
        self.init([1, 2, 840, 10045, 2, 1], parameters: parameters) { $0.serializeRawBytes(raw) }
    }

    /// An Ed25519 key of `CKA_EC_POINT`.
    init?(edwardsPoint point: [UInt8]) {
        let raw = point.count == 32 ? point : Self.octets(of: point)
        guard let raw, raw.count == 32 else { return nil }
        self.init([1, 3, 101, 112], parameters: []) { $0.serializeRawBytes(raw) }
    }

    /// The content of a DER OCTET STRING or BIT STRING.
    static func octets(of der: [UInt8]) -> [UInt8]? {
        guard let node = try? DER.parse(der) else { return nil }
        if let string = try? ASN1OctetString(derEncoded: node) { return Array(string.bytes) }
        return (try? ASN1BitString(derEncoded: node)).map { Array($0.bytes) }
    }

    private init?(
        _ algorithm: ASN1ObjectIdentifier, parameters: [UInt8], _ content: (inout DER.Serializer) -> Void
    ) {
        var bits = DER.Serializer()
        content(&bits)
        var serializer = DER.Serializer()
        let result: Void? = try? serializer.appendConstructedNode(identifier: .sequence) { coder in
            try coder.appendConstructedNode(identifier: .sequence) { coder in
                try coder.serialize(algorithm)
                coder.serializeRawBytes(parameters)
            }
            try coder.serialize(ASN1BitString(bytes: bits.serializedBytes[...]))
        }
        guard result != nil, let key = try? PublicKeyInfo(derRepresentation: serializer.serializedBytes) else {
            return nil
        }
        self = key
    }
}

import CP11Kit
import CertificateProviding
import SwiftASN1

extension TokenReader {
    /// Returns the public key objects.
    /// - Parameter id: Only those with this `CKA_ID`.
    func publicKeys(id: [UInt8]? = nil) throws(CryptokiError) -> [(handle: CK_OBJECT_HANDLE, key: PublicKeyInfo)] {
        var attributes = [Attribute(CKA_CLASS, CKO_PUBLIC_KEY)]
        if let id { attributes.append(Attribute(CKA_ID, id)) }
        var keys: [(CK_OBJECT_HANDLE, PublicKeyInfo)] = []
        for handle in try session.objects(with: attributes) {
            if let key = try publicKey(handle) { keys.append((handle, key)) }
        }
        return keys
    }

    /// Returns the keys of the public key objects and of the certificates, by their `CKA_ID`.
    func publicKeysByID() throws(CryptokiError) -> [[UInt8]: [PublicKeyInfo]] {
        var keys: [[UInt8]: [PublicKeyInfo]] = [:]
        let found = try publicKeys() + certificates(with: []).map { ($0.handle, $0.certificate.publicKey) }
        for (handle, key) in found { keys[try session.attribute(CKA_ID, of: handle) ?? [], default: []].append(key) }
        return keys
    }

    /// Reads a public key object; `nil` for one that cannot be understood.
    func publicKey(_ handle: CK_OBJECT_HANDLE) throws(CryptokiError) -> PublicKeyInfo? {
        switch try session.number(CKA_KEY_TYPE, of: handle) {
        case CK_ULONG(CKK_RSA):
            guard let modulus = try session.attribute(CKA_MODULUS, of: handle),
                let exponent = try session.attribute(CKA_PUBLIC_EXPONENT, of: handle)
            else { return nil }
            return Self.rsaKey(modulus: modulus, exponent: exponent)
        case CK_ULONG(CKK_EC):
            guard let parameters = try session.attribute(CKA_EC_PARAMS, of: handle),
                let point = try session.attribute(CKA_EC_POINT, of: handle)
            else { return nil }
            return Self.ecKey(parameters: parameters, point: point)
        case CK_ULONG(CKK_EC_EDWARDS):
            guard let point = try session.attribute(CKA_EC_POINT, of: handle) else { return nil }
            return Self.ed25519Key(point)
        default: return nil
        }
    }

    private static func rsaKey(modulus: [UInt8], exponent: [UInt8]) -> PublicKeyInfo? {
        key([1, 2, 840, 113549, 1, 1, 1], parameters: [5, 0]) { serializer in
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

    private static func ecKey(parameters: [UInt8], point: [UInt8]) -> PublicKeyInfo? {
        // The standard wants the point as a DER OCTET STRING; some modules give it as it is. Told by the length, since
        // a point begins like an OCTET STRING. Of P-256, P-384 and P-521: uncompressed, then compressed.
        let content = octets(of: point)
        let raw = content.flatMap { [65, 97, 133, 33, 49, 67].contains($0.count) ? $0 : nil } ?? point
        return key([1, 2, 840, 10045, 2, 1], parameters: parameters) { $0.serializeRawBytes(raw) }
    }

    private static func ed25519Key(_ point: [UInt8]) -> PublicKeyInfo? {
        let raw = point.count == 32 ? point : octets(of: point)
        guard let raw, raw.count == 32 else { return nil }
        return key([1, 3, 101, 112], parameters: []) { $0.serializeRawBytes(raw) }
    }

    /// The content of a DER OCTET STRING or BIT STRING.
    static func octets(of der: [UInt8]) -> [UInt8]? {
        guard let node = try? DER.parse(der) else { return nil }
        if let string = try? ASN1OctetString(derEncoded: node) { return Array(string.bytes) }
        return (try? ASN1BitString(derEncoded: node)).map { Array($0.bytes) }
    }

    private static func key(
        _ algorithm: ASN1ObjectIdentifier, parameters: [UInt8], _ content: (inout DER.Serializer) -> Void
    ) -> PublicKeyInfo? {
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
        return result.flatMap { try? PublicKeyInfo(derRepresentation: serializer.serializedBytes) }
    }
}

import CertificateProviding
import ProviderTransport
import SwiftASN1

/// A key that the server has made, and the certificates for it (RFC 7030, section 4.4.2).
struct ServerGeneratedKey: Sendable {
    /// PKCS#8. Only checked for being readable.
    let privateKey: SecretBytes
    /// In any order.
    let certificates: [X509Certificate]

    /// - Throws: `protocolError`; `unsupportedAlgorithm` for a key that is encrypted in addition to TLS, or whose
    ///   type is not supported.
    init(_ response: HTTPResponse) throws(ProviderError) {
        let parts = try MultipartBody(response).parts
        let keys = parts.filter { $0.isOfType("application/pkcs8") }
        let encrypted = parts.filter {
            $0.isOfType("application/pkcs7-mime") && $0.type.contains("server-generated-key")
        }
        let bags = parts.filter { $0.isOfType("application/pkcs7-mime") && !$0.type.contains("server-generated-key") }
        guard encrypted.isEmpty else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "The server encrypts the key that it has made (CMS EnvelopedData), which is not supported; configure "
                    + "it to send the key as PKCS#8 over TLS, or remove 'server-keygen'.")
        }
        guard keys.count == 1, bags.count == 1, let key = keys.first, let bag = bags.first else {
            throw ProviderError(
                .protocolError,
                "The server's answer has \(keys.count) keys and \(bags.count) collections of certificates; one of "
                    + "each is expected. Ask its administrator.")
        }
        certificates = try CertificateBag.certificates(in: Base64Body.decode(bag.content))
        privateKey = try Self.pkcs8(try Base64Body.decode(key.content))
    }

    /// Some servers send PKCS#1 (RFC 8017, appendix A.1.2) and call it PKCS#8.
    private static func pkcs8(_ der: [UInt8]) throws(ProviderError) -> SecretBytes {
        let key = isRSAPrivateKey(der) ? try wrapped(der) : SecretBytes(copying: der)
        do { _ = try SoftwareKey(pkcs8: key, location: .store) } catch {
            guard error.code == .malformedData else { throw error }
            throw ProviderError(
                .protocolError, "The key that the server has made is damaged, or not PKCS#8; ask its administrator.")
        }
        return key
    }

    private static func isRSAPrivateKey(_ der: [UInt8]) -> Bool {
        guard let node = try? DER.parse(der), node.identifier == .sequence, case .constructed(let fields) = node.content
        else { return false }
        // A version and eight numbers, where PKCS#8 has a version and an algorithm.
        return fields.prefix(9).allSatisfy { $0.identifier == .integer } && Array(fields).count >= 9
    }

    private static func wrapped(_ rsa: [UInt8]) throws(ProviderError) -> SecretBytes {
        var serializer = DER.Serializer()
        do {
            try serializer.appendConstructedNode(identifier: .sequence) { coder in
                try coder.serialize(0)
                try coder.appendConstructedNode(identifier: .sequence) { coder in
                    try coder.serialize([1, 2, 840, 113549, 1, 1, 1] as ASN1ObjectIdentifier)
                    try coder.serialize(ASN1Null())
                }
                try coder.serialize(ASN1OctetString(contentBytes: rsa[...]))
            }
        } catch {
            // Without the underlying error, which might quote the key.
            throw ProviderError(.internal, "The key that the server has made cannot be written as PKCS#8.")
        }
        return SecretBytes(copying: serializer.serializedBytes)
    }
}

extension MultipartBody.Part {
    fileprivate func isOfType(_ wanted: String) -> Bool { String(type.prefix { $0 != ";" }).trimmed == wanted }
}

import COpenSSL
import CertificateProviding

@testable import OpenSSLSupport

/// A certificate and its private key, with which OpenSSL signs and decrypts: the other side of the messages.
final class CMSIdentity {
    let certificate: CertificateHandle
    let key: PrivateKeyHandle

    init(certificate: [UInt8], key: SecretBytes, in library: OpenSSLLibrary) throws {
        self.certificate = try CertificateHandle(certificate, in: library)
        self.key = try PrivateKeyHandle(pkcs8: key, in: library)
    }
}

extension OpenSSLLibrary {
    private static let flags = UInt32(CMS_PARTIAL | CMS_BINARY | CMS_NOSMIMECAP)

    /// Signs `content` in a SignedData with one signer. The message includes the signer's certificate.
    ///
    /// - Parameters:
    ///   - content: `nil` for a message without content, which has only attributes.
    ///   - digest: OpenSSL's name of the digest.
    /// - Returns: The message, DER.
    func signedData(
        _ content: [UInt8]?, attributes: [CMSAttribute], signer identity: CMSIdentity, digest: String
    ) throws(OpenSSLError) -> [UInt8] {
        let data = try MemoryBIO(content ?? [])
        let flags = Self.flags | (content == nil ? UInt32(CMS_DETACHED) : 0)
        OpenSSLError.clear()
        guard let digest = EVP_MD_fetch(context, digest, nil) else { throw OpenSSLError("EVP_MD_fetch") }
        defer { EVP_MD_free(digest) }
        guard let content = CMS_sign_ex(nil, nil, nil, data.pointer, flags, context, nil) else {
            throw OpenSSLError("CMS_sign_ex")
        }
        let message = CMSMessage(adopting: content)
        guard let signer = CMS_add1_signer(content, identity.certificate.pointer, identity.key.pointer, digest, flags)
        else {
            throw OpenSSLError("CMS_add1_signer")
        }
        for attribute in attributes { try Self.add(attribute, to: signer) }
        guard CMS_final(content, data.pointer, nil, flags) == 1 else { throw OpenSSLError("CMS_final") }
        return try message.derRepresentation()
    }

    private static func add(_ attribute: CMSAttribute, to signer: OpaquePointer) throws(OpenSSLError) {
        let (type, bytes) =
            switch attribute.value {
            case .printableString(let text): (V_ASN1_PRINTABLESTRING, Array(text.utf8))
            case .utf8String(let text): (V_ASN1_UTF8STRING, Array(text.utf8))
            case .octetString(let bytes): (V_ASN1_OCTET_STRING, bytes)
            }
        OpenSSLError.clear()
        guard CMS_signed_add1_attr_by_txt(signer, attribute.type, type, bytes, Int32(clamping: bytes.count)) == 1 else {
            throw OpenSSLError("CMS_signed_add1_attr_by_txt")
        }
    }

    /// Decrypts an EnvelopedData.
    func decryptEnvelopedData(_ message: [UInt8], recipient: CMSIdentity) throws(OpenSSLError) -> [UInt8] {
        let message = try CMSMessage(message, in: self)
        try message.require(NID_pkcs7_enveloped)
        // scepclient encrypts with DES.
        _ = loadLegacyProvider()
        let output = try MemoryBIO()
        OpenSSLError.clear()
        guard
            CMS_decrypt(
                message.pointer, recipient.key.pointer, recipient.certificate.pointer, nil, output.pointer,
                UInt32(CMS_BINARY)) == 1
        else { throw OpenSSLError("CMS_decrypt") }
        return output.content
    }
}

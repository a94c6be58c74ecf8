internal import COpenSSL
internal import SwiftASN1

/// A cipher for the content of an EnvelopedData, by its object identifier.
public struct CMSCipher: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }

    public static let aes128CBC = Self(rawValue: "2.16.840.1.101.3.4.1.2")
    public static let aes192CBC = Self(rawValue: "2.16.840.1.101.3.4.1.22")
    public static let aes256CBC = Self(rawValue: "2.16.840.1.101.3.4.1.42")
    public static let tripleDESCBC = Self(rawValue: "1.2.840.113549.3.7")
    /// Single DES. Can be read, where the host has OpenSSL's legacy provider, and not be written.
    public static let desCBC = Self(rawValue: "1.3.14.3.2.7")

    public var description: String { OpenSSLLibrary.name(ofOID: rawValue) }
}

extension OpenSSLLibrary {
    /// Returns `content` in an EnvelopedData (RFC 5652, section 6) for the RSA key of one certificate.
    public func envelopedData(
        _ content: [UInt8], recipient: [UInt8], cipher: CMSCipher
    ) throws(OpenSSLError) -> [UInt8] {
        defer { releaseThreadState() }
        let recipients = try CertificateStack([CertificateHandle(recipient, in: self)])
        let data = try MemoryBIO(content)
        OpenSSLError.clear()
        guard let cipher = EVP_CIPHER_fetch(context, cipher.rawValue, nil) else {
            throw OpenSSLError("EVP_CIPHER_fetch(\(cipher))")
        }
        defer { EVP_CIPHER_free(cipher) }
        guard
            let message = CMS_encrypt_ex(
                recipients.pointer, data.pointer, cipher, UInt32(CMS_BINARY), context, nil)
        else { throw OpenSSLError("CMS_encrypt_ex") }
        return try CMSMessage(adopting: message).derRepresentation()
    }

    /// Decrypts an EnvelopedData.
    ///
    /// - Parameter ciphers: Those that are accepted.
    /// - Returns: The content and what it was encrypted with.
    public func decryptEnvelopedData(
        _ message: [UInt8], recipient: CMSIdentity, accepting ciphers: Set<CMSCipher>
    ) throws(OpenSSLError) -> (content: [UInt8], cipher: CMSCipher) {
        defer { releaseThreadState() }
        let message = try CMSMessage(message, in: self)
        try message.require(NID_pkcs7_enveloped)
        let cipher = try Self.contentCipher(ofEnvelopedData: try message.derRepresentation())
        guard ciphers.contains(cipher) else {
            throw OpenSSLError("CMS_decrypt", refusing: "the content is encrypted with \(cipher)", isAlgorithm: true)
        }
        guard cipher != .desCBC || loadLegacyProvider() else {
            throw OpenSSLError(
                "OSSL_PROVIDER_load", refusing: "\(cipher) needs OpenSSL's legacy provider", isAlgorithm: true)
        }
        let output = try MemoryBIO()
        OpenSSLError.clear()
        guard
            CMS_decrypt(
                message.pointer, recipient.key.pointer, recipient.certificate.pointer, nil, output.pointer,
                UInt32(CMS_BINARY)) == 1
        else { throw OpenSSLError("CMS_decrypt") }
        return (output.content, cipher)
    }

    /// OpenSSL has no function that tells it before it decrypts.
    private static func contentCipher(ofEnvelopedData der: [UInt8]) throws(OpenSSLError) -> CMSCipher {
        do {
            let enveloped = try children(children(DER.parse(der)).last)
            // Before it are the version and the recipients, after it may be unprotected attributes.
            let content = try children(children(enveloped.first).last { $0.identifier == .sequence })
            let algorithm = try children(content.dropFirst().first)
            return CMSCipher(rawValue: "\(try ASN1ObjectIdentifier(derEncoded: required(algorithm.first)))")
        } catch {
            throw OpenSSLError("d2i_CMS_ContentInfo", refusing: "the EnvelopedData names no cipher")
        }
    }

    private static func children(_ node: ASN1Node?) throws -> [ASN1Node] {
        guard case .constructed(let nodes) = try required(node).content else { return [] }
        return Array(nodes)
    }

    private static func required(_ node: ASN1Node?) throws -> ASN1Node {
        guard let node else { throw ASN1Error.invalidASN1Object(reason: "an element is missing") }
        return node
    }
}

internal import COpenSSL
internal import SwiftASN1

/// A cipher for the content of an EnvelopedData, by its object identifier.
package struct CMSCipher: RawRepresentable, Hashable, Sendable, CustomStringConvertible {
    /// The object identifier in dotted form.
    package let rawValue: String
    /// Makes a cipher of an object identifier in dotted form.
    package init(rawValue: String) { self.rawValue = rawValue }

    /// AES-128 in CBC mode (RFC 3565).
    package static let aes128CBC = Self(rawValue: "2.16.840.1.101.3.4.1.2")
    /// AES-192 in CBC mode (RFC 3565).
    package static let aes192CBC = Self(rawValue: "2.16.840.1.101.3.4.1.22")
    /// AES-256 in CBC mode (RFC 3565).
    package static let aes256CBC = Self(rawValue: "2.16.840.1.101.3.4.1.42")
    /// Triple DES in CBC mode (RFC 3370).
    package static let tripleDESCBC = Self(rawValue: "1.2.840.113549.3.7")
    /// Single DES in CBC mode. For decryption only, on hosts with OpenSSL's legacy provider.
    package static let desCBC = Self(rawValue: "1.3.14.3.2.7")

    /// OpenSSL's name of the cipher.
    package var description: String { OpenSSLLibrary.name(ofOID: rawValue) }
}

extension OpenSSLLibrary {
    /// Encrypts `content` in an EnvelopedData (RFC 5652, section 6) for the RSA key of one certificate.
    ///
    /// - Parameter recipient: The certificate, DER.
    /// - Returns: The message, DER.
    package func envelopedData(
        _ content: [UInt8], recipient: [UInt8], cipher: CMSCipher
    ) throws(OpenSSLError) -> [UInt8] {
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
    /// - Parameter ciphers: The accepted ciphers; any other is an error.
    /// - Returns: The content, and the cipher that it was encrypted with.
    package func decryptEnvelopedData(
        _ message: [UInt8], recipient: CMSIdentity, accepting ciphers: Set<CMSCipher>
    ) throws(OpenSSLError) -> (content: [UInt8], cipher: CMSCipher) {
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

    /// Reads the cipher from the DER, since OpenSSL has no function that returns it before decryption.
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

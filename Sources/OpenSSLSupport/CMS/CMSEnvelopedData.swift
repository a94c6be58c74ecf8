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
}

internal import COpenSSL
package import CertificateProviding
internal import SwiftASN1

/// An EnvelopedData (RFC 5652, section 6) for an RSA key that OpenSSL does not hold.
///
/// The caller decrypts ``encryptedKey`` with that key and passes the result to ``content(key:with:)``.
package struct CMSEnvelope: Sendable {
    /// The content-encryption key, encrypted by RSAES-PKCS1-v1_5.
    package let encryptedKey: [UInt8]
    /// The cipher of the content.
    package let cipher: CMSCipher
    private let initializationVector: [UInt8]
    private let encryptedContent: [UInt8]

    /// Reads a message, BER or DER.
    ///
    /// - Parameters:
    ///   - certificate: The recipient's certificate, DER.
    ///   - ciphers: The accepted ciphers; any other is an error.
    package init(
        _ message: [UInt8], for certificate: [UInt8], accepting ciphers: Set<CMSCipher>, with library: OpenSSLLibrary
    ) throws(OpenSSLError) {
        let message = try CMSMessage(message, in: library)
        try message.require(NID_pkcs7_enveloped)
        let der = try message.derRepresentation()
        do {
            let enveloped = try DER.parse(der).elements.element(1).elements.element(0).elements
            guard let recipients = enveloped.first(where: { $0.identifier == .set }),
                let content = enveloped.last(where: { $0.identifier == .sequence })
            else { throw ASN1Error.invalidASN1Object(reason: "an element is missing") }
            var named = try recipients.elements
            // A single recipient's name does not matter: a server may encode it in another way.
            if named.count > 1 { named = try named.filter { try Self.isFor(certificate, $0) } }
            guard let recipient = named.first, named.count == 1 else {
                throw ASN1Error.invalidASN1Object(reason: "not exactly one RecipientInfo is for the certificate")
            }
            let transport = try recipient.elements.element(2).elements.element(0)
            guard try ASN1ObjectIdentifier(derEncoded: transport) == [1, 2, 840, 113549, 1, 1, 1] else {
                throw OpenSSLError(
                    "CMS_decrypt", refusing: "the content's key is not encrypted by RSAES-PKCS1-v1_5",
                    isAlgorithm: true)
            }
            encryptedKey = Array(try ASN1OctetString(derEncoded: recipient.elements.element(3)).bytes)
            let algorithm = try content.elements.element(1).elements
            cipher = CMSCipher(rawValue: "\(try ASN1ObjectIdentifier(derEncoded: algorithm.element(0)))")
            initializationVector = Array(try ASN1OctetString(derEncoded: algorithm.element(1)).bytes)
            guard case .primitive(let bytes) = try content.elements.element(2).content else {
                throw ASN1Error.invalidASN1Object(
                    reason: "the constructed encoding of encryptedContent is not supported")
            }
            encryptedContent = Array(bytes)
        } catch let error as OpenSSLError {
            throw error
        } catch {
            throw OpenSSLError("d2i_CMS_ContentInfo", refusing: "the EnvelopedData cannot be used: \(error)")
        }
        guard ciphers.contains(cipher) else {
            throw OpenSSLError("CMS_decrypt", refusing: "the content is encrypted with \(cipher)", isAlgorithm: true)
        }
    }

    /// Whether a RecipientInfo is a KeyTransRecipientInfo with the issuer and the serial number of a certificate, or
    /// with a subject key identifier. The identifier is not compared: decryption fails if it is of another key.
    private static func isFor(_ certificate: [UInt8], _ recipient: ASN1Node) throws -> Bool {
        guard recipient.identifier == .sequence else { return false }
        let name = try recipient.elements.element(1)
        guard name.identifier == .sequence else { return true }
        var fields = try DER.parse(certificate).elements.element(0).elements
        if fields.first?.identifier.tagClass == .contextSpecific { fields.removeFirst() }
        let (issuer, serialNumber) = try (fields.element(2), fields.element(0))
        return try name.elements.map(\.encodedBytes) == [issuer.encodedBytes, serialNumber.encodedBytes]
    }

    /// Decrypts the content.
    ///
    /// - Parameter key: The content-encryption key, decrypted from ``encryptedKey``.
    package func content(key: SecretBytes, with library: OpenSSLLibrary) throws(OpenSSLError) -> [UInt8] {
        guard cipher != .desCBC || library.loadLegacyProvider() else {
            throw OpenSSLError(
                "OSSL_PROVIDER_load", refusing: "\(cipher) needs OpenSSL's legacy provider", isAlgorithm: true)
        }
        OpenSSLError.clear()
        guard let algorithm = EVP_CIPHER_fetch(library.context, cipher.rawValue, nil) else {
            throw OpenSSLError("EVP_CIPHER_fetch(\(cipher))")
        }
        defer { EVP_CIPHER_free(algorithm) }
        guard let context = EVP_CIPHER_CTX_new() else { throw OpenSSLError("EVP_CIPHER_CTX_new") }
        defer { EVP_CIPHER_CTX_free(context) }
        guard key.count == EVP_CIPHER_get_key_length(algorithm),
            initializationVector.count == EVP_CIPHER_get_iv_length(algorithm),
            encryptedContent.count <= 1 << 24
        else { throw OpenSSLError("EVP_DecryptInit_ex2", refusing: "the key, IV or content has the wrong size") }
        let isReady = key.withUnsafeBytes { key in
            EVP_DecryptInit_ex2(
                context, algorithm, key.bindMemory(to: UInt8.self).baseAddress, initializationVector, nil)
        }
        guard isReady == 1 else { throw OpenSSLError("EVP_DecryptInit_ex2") }
        var content = [UInt8](repeating: 0, count: encryptedContent.count + Int(EVP_MAX_BLOCK_LENGTH))
        var (count, rest): (Int32, Int32) = (0, 0)
        let isWhole = content.withUnsafeMutableBufferPointer { output in
            EVP_DecryptUpdate(context, output.baseAddress, &count, encryptedContent, Int32(encryptedContent.count)) == 1
                && EVP_DecryptFinal_ex(context, output.baseAddress.map { $0 + Int(count) }, &rest) == 1
        }
        guard isWhole else { throw OpenSSLError("EVP_DecryptFinal_ex") }
        return Array(content.prefix(Int(count + rest)))
    }
}

extension ASN1Node {
    fileprivate var elements: [ASN1Node] {
        get throws {
            guard case .constructed(let nodes) = content else {
                throw ASN1Error.invalidASN1Object(reason: "an element is missing")
            }
            return Array(nodes)
        }
    }
}

extension [ASN1Node] {
    fileprivate func element(_ index: Int) throws -> ASN1Node {
        guard indices.contains(index) else { throw ASN1Error.invalidASN1Object(reason: "an element is missing") }
        return self[index]
    }
}

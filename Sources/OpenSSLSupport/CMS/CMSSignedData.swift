internal import COpenSSL

/// An attribute of a signer (RFC 5652, section 5.3) with one value.
package struct CMSAttribute: Sendable, Hashable {
    /// A value and its ASN.1 type.
    package enum Value: Sendable, Hashable {
        /// `PrintableString` (X.680, section 41).
        case printableString(String)
        /// `UTF8String`.
        case utf8String(String)
        /// `OCTET STRING`.
        case octetString([UInt8])
    }

    /// An object identifier, such as `1.2.840.113549.1.9.4`.
    package var type: String
    /// The one value of the attribute.
    package var value: Value

    /// Makes an attribute of an object identifier and a value.
    package init(_ type: String, _ value: Value) {
        self.type = type
        self.value = value
    }
}

/// The content and signed attributes of a SignedData (RFC 5652, section 5) whose signature has been verified.
package struct CMSSignedContent: Sendable {
    /// The content; empty if the message has none.
    package let content: [UInt8]
    /// The signed attributes that have one value, a string. A type may occur more than once.
    package let attributes: [CMSAttribute]
    /// OpenSSL's name of the digest, such as `SHA256`.
    package let digest: String
}

extension OpenSSLLibrary {
    /// Verifies the signature of a SignedData with one signer.
    ///
    /// - Parameter signers: Certificates, DER, one of which must have signed. They are not validated: the caller
    ///   already trusts them. Certificates in the message are not used.
    package func verifySignedData(
        _ message: [UInt8], signers: [[UInt8]]
    ) throws(OpenSSLError) -> CMSSignedContent {
        let signed = try CMSSignedMessage(message, in: self)
        let (message, signer) = (signed.message, signed.signer)
        let candidates = try CertificateStack(
            signers.map { der throws(OpenSSLError) in try CertificateHandle(der, in: self) })
        let output = try MemoryBIO()
        // Stands in for content that is not there, and is digested all the same.
        let nothing = try MemoryBIO()
        OpenSSLError.clear()
        let flags = UInt32(CMS_NOINTERN | CMS_NO_SIGNER_CERT_VERIFY | CMS_BINARY)
        guard
            CMS_verify(
                message.pointer, candidates.pointer, nil, signed.content == nil ? nothing.pointer : nil,
                output.pointer, flags) == 1
        else { throw OpenSSLError("CMS_verify") }
        return CMSSignedContent(
            content: output.content, attributes: Self.attributes(of: signer), digest: signed.digestName)
    }

    /// Returns the certificates in a SignedData, DER, in any order. Its signatures, if it has any, are not verified.
    package func certificates(inSignedData message: [UInt8]) throws(OpenSSLError) -> [[UInt8]] {
        let message = try CMSMessage(message, in: self)
        try message.require(NID_pkcs7_signed)
        // The stack is nil if the message has no certificates.
        return try CertificateStack(adopting: CMS_get1_certs(message.pointer)).derRepresentations()
    }

    private static func attributes(of signer: OpaquePointer) -> [CMSAttribute] {
        (0..<CMS_signed_get_attr_count(signer)).compactMap { index in
            guard let attribute = CMS_signed_get_attr(signer, index), X509_ATTRIBUTE_count(attribute) == 1,
                let type = Self.text(of: X509_ATTRIBUTE_get0_object(attribute)),
                let any = X509_ATTRIBUTE_get0_type(attribute, 0)
            else { return nil }
            let kind = ASN1_TYPE_get(any)
            guard [V_ASN1_PRINTABLESTRING, V_ASN1_UTF8STRING, V_ASN1_OCTET_STRING].contains(kind),
                let string = any.pointee.value.asn1_string
            else { return nil }
            let bytes = Array(
                UnsafeBufferPointer(start: ASN1_STRING_get0_data(string), count: Int(ASN1_STRING_length(string))))
            if kind == V_ASN1_OCTET_STRING { return CMSAttribute(type, .octetString(bytes)) }
            let text = String(decoding: bytes, as: UTF8.self)
            return CMSAttribute(type, kind == V_ASN1_UTF8STRING ? .utf8String(text) : .printableString(text))
        }
    }

    /// The dotted form of an object identifier; `nil` if it is longer than 127 characters.
    private static func text(of object: OpaquePointer?) -> String? {
        var text = [CChar](repeating: 0, count: 128)
        let length = Int(OBJ_obj2txt(&text, Int32(text.count), object, 1))
        guard length > 0, length < text.count else { return nil }
        return String(decoding: text[..<length].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

internal import COpenSSL
package import CertificateProviding
package import FoundationEssentials
internal import SwiftASN1

/// A SignedData (RFC 5652, section 5) with one signer, which has signed attributes.
package final class CMSSignedMessage {
    let message: CMSMessage
    let signer: OpaquePointer
    private let library: OpenSSLLibrary
    /// The certificates of the message, DER, in any order.
    package let certificates: [[UInt8]]
    /// The one of them that the signer names; `nil` if it is not there.
    package let signerCertificate: [UInt8]?

    /// Reads a message. Verifies nothing.
    package init(_ message: [UInt8], in library: OpenSSLLibrary) throws(OpenSSLError) {
        let message = try CMSMessage(message, in: library)
        try message.require(NID_pkcs7_signed)
        OpenSSLError.clear()
        // OpenSSL accepts a message without any signature as one whose signatures are all good.
        guard let infos = CMS_get0_SignerInfos(message.pointer), OPENSSL_sk_num(infos) == 1,
            let signer = OPENSSL_sk_value(infos, 0).map(OpaquePointer.init)
        else { throw OpenSSLError("CMS_get0_SignerInfos", refusing: "the message has not exactly one signer") }
        // Without them, any signature over the content's bytes could be wrapped in a message.
        guard CMS_signed_get_attr_count(signer) > 0 else {
            throw OpenSSLError("CMS_signed_get_attr_count", refusing: "the signer has no attributes")
        }
        // The stack is nil if the message has no certificates.
        let certificates = try CertificateStack(adopting: CMS_get1_certs(message.pointer)).derRepresentations()
        signerCertificate = certificates.first { der in
            (try? CertificateHandle(der, in: library)).map { CMS_SignerInfo_cert_cmp(signer, $0.pointer) == 0 } ?? false
        }
        (self.message, self.signer, self.library, self.certificates) = (message, signer, library, certificates)
    }

    /// Whether the content is data (`id-data`), and not another structure, such as that of a time stamp.
    package var isOfData: Bool { OBJ_obj2nid(CMS_get0_eContentType(message.pointer)) == NID_pkcs7_data }

    /// Whether the signed attributes name this type of content (RFC 5652, section 11.1): else the bytes were signed as something else.
    package var isContentTypeSigned: Bool {
        OpenSSLError.clear()
        let named = CMS_signed_get0_data_by_OBJ(signer, OBJ_nid2obj(NID_pkcs9_contentType), -3, V_ASN1_OBJECT)
        return named.map { OBJ_cmp(OpaquePointer($0), CMS_get0_eContentType(message.pointer)) == 0 } ?? false
    }

    /// Whether it is a time-stamp token (RFC 3161, section 2.4.2).
    package var isTimeStamp: Bool { OBJ_obj2nid(CMS_get0_eContentType(message.pointer)) == NID_id_smime_ct_TSTInfo }

    /// The content; `nil` for a detached signature.
    package var content: [UInt8]? {
        guard let place = CMS_get0_content(message.pointer), let string = place.pointee else { return nil }
        return Self.bytes(of: string)
    }

    /// OpenSSL's name of the content's digest, such as `SHA1`.
    package var digestName: String {
        var algorithm: UnsafeMutablePointer<X509_ALGOR>?
        CMS_SignerInfo_get0_algs(signer, nil, nil, &algorithm, nil)
        guard let algorithm, let name = OBJ_nid2sn(OBJ_obj2nid(algorithm.pointee.algorithm)) else { return "" }
        return String(cString: name)
    }

    /// The hash function of the content's digest; `nil` for one that signatures are not accepted with.
    package var digestAlgorithm: DigestAlgorithm? {
        switch digestName {
        case "SHA256": .sha256
        case "SHA384": .sha384
        case "SHA512": .sha512
        default: nil
        }
    }

    /// The digest of the content that the signer has signed (section 11.2).
    package var messageDigest: [UInt8]? { attribute(NID_pkcs9_messageDigest, V_ASN1_OCTET_STRING) }

    /// The time at which the signer claims to have signed (section 11.3).
    package var signingTime: Date? {
        for kind in [V_ASN1_UTCTIME, V_ASN1_GENERALIZEDTIME] {
            guard
                let value = CMS_signed_get0_data_by_OBJ(signer, OBJ_nid2obj(NID_pkcs9_signingTime), -3, kind)
            else { continue }
            return OpenSSLLibrary.date(value.assumingMemoryBound(to: ASN1_TIME.self))
        }
        return nil
    }

    /// The value of the signature, which a time stamp is about.
    package var signature: [UInt8] {
        CMS_SignerInfo_get0_signature(signer).map { Self.bytes(of: $0) } ?? []
    }

    /// The time stamp of the signature among the unsigned attributes (RFC 3161, appendix A), DER; `nil` without one.
    package var timeStamp: [UInt8]? {
        let index = CMS_unsigned_get_attr_by_NID(signer, NID_id_smime_aa_timeStampToken, -1)
        guard index >= 0, let attribute = CMS_unsigned_get_attr(signer, index),
            let any = X509_ATTRIBUTE_get0_type(attribute, 0), ASN1_TYPE_get(any) == V_ASN1_SEQUENCE,
            let string = any.pointee.value.asn1_string
        else { return nil }
        return Self.bytes(of: string)
    }

    private func attribute(_ type: Int32, _ kind: Int32) -> [UInt8]? {
        OpenSSLError.clear()
        // -3: the one attribute of this type, with one value.
        return CMS_signed_get0_data_by_OBJ(signer, OBJ_nid2obj(type), -3, kind).map {
            Self.bytes(of: $0.assumingMemoryBound(to: ASN1_STRING.self))
        }
    }

    private static func bytes(of string: UnsafePointer<ASN1_STRING>) -> [UInt8] {
        Array(UnsafeBufferPointer(start: ASN1_STRING_get0_data(string), count: Int(ASN1_STRING_length(string))))
    }

    /// Verifies that the key of the signer's certificate has signed the attributes, and that signing-certificate-v2 (RFC 5035), where there is
    /// one, names that certificate. Neither the content nor the certificate is looked at.
    package func verifySigner() throws(OpenSSLError) {
        guard let signerCertificate else {
            throw OpenSSLError("CMS_SignerInfo_verify", refusing: "the message has no certificate of its signer")
        }
        guard digestAlgorithm != nil else {
            throw OpenSSLError("CMS_SignerInfo_verify", refusing: "the digest is by \(digestName)", isAlgorithm: true)
        }
        let certificate = try CertificateHandle(signerCertificate, in: library)
        try verifyNamedCertificate(signerCertificate)
        // OpenSSL 3.0 does not verify SignedData with Ed25519 (RFC 8419).
        if let key = try? X509Certificate(derRepresentation: signerCertificate).publicKey, key.algorithm == .ed25519 {
            guard let attributes = try signedAttributes(),
                key.isValidSignature(signature, for: attributes, using: .ed25519)
            else { throw OpenSSLError("CMS_SignerInfo_verify", refusing: "the signature is wrong") }
            return
        }
        CMS_SignerInfo_set1_signer_cert(signer, certificate.pointer)
        OpenSSLError.clear()
        guard CMS_SignerInfo_verify(signer) == 1 else { throw OpenSSLError("CMS_SignerInfo_verify") }
    }

    /// The signed attributes as they are signed: a SET OF in DER (section 5.4).
    private func signedAttributes() throws(OpenSSLError) -> [UInt8]? {
        let der = try message.derRepresentation()
        let signedData = Self.elements(Self.elements(Self.elements(try? DER.parse(der)).last).first)
        let attributes = Self.elements(Self.elements(signedData.last).first).first {
            $0.identifier == ASN1Identifier(tagWithNumber: 0, tagClass: .contextSpecific)
        }
        return attributes.map { [0x31] + $0.encodedBytes.dropFirst() }
    }

    /// Another certificate of the same key would have another subject. The first that signing-certificate-v2 names is the signer's (RFC 5035,
    /// section 3); others, of its chain, need not be in the message.
    private func verifyNamedCertificate(_ certificate: [UInt8]) throws(OpenSSLError) {
        let type = OBJ_nid2obj(NID_id_smime_aa_signingCertificateV2)
        guard CMS_signed_get_attr_by_OBJ(signer, type, -1) >= 0 else { return }
        guard let value = attribute(NID_id_smime_aa_signingCertificateV2, V_ASN1_SEQUENCE) else {
            throw OpenSSLError("CMS_signed_get0_data_by_OBJ")
        }
        let identifier = Self.elements(Self.elements(Self.elements(try? DER.parse(value)).first).first)
        let digest = identifier.first { $0.identifier == .octetString }
        guard case .primitive(let bytes)? = digest?.content,
            let algorithm = [DigestAlgorithm.sha256, .sha384, .sha512].first(where: { $0.size == bytes.count }),
            algorithm.digest(of: certificate).elementsEqual(bytes)
        else {
            throw OpenSSLError("CMS_SignerInfo_verify", refusing: "its attributes name another certificate")
        }
    }

    private static func elements(_ node: ASN1Node?) -> [ASN1Node] {
        if case .constructed(let nodes)? = node?.content { Array(nodes) } else { [] }
    }
}

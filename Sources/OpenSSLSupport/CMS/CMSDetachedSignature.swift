internal import COpenSSL

/// A SignedData (RFC 5652, section 5) without content and with one signer, which has signed attributes.
package final class CMSDetachedSignature {
    private let message: CMSMessage
    private let signer: OpaquePointer
    private let library: OpenSSLLibrary
    /// The certificates of the message, DER, in any order.
    package let certificates: [[UInt8]]
    /// The one of them that the signer names; `nil` if it is not there.
    package let signerCertificate: [UInt8]?

    /// Reads a message. Verifies nothing.
    package init(_ message: [UInt8], in library: OpenSSLLibrary) throws(OpenSSLError) {
        let message = try CMSMessage(message, in: library)
        try message.require(NID_pkcs7_signed)
        guard CMS_get0_content(message.pointer)?.pointee == nil else {
            throw OpenSSLError("CMS_get0_content", refusing: "the message has content of its own")
        }
        OpenSSLError.clear()
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

    /// Verifies that the signer's certificate has signed content: the signature, the digest, which is by SHA-256, SHA-384 or SHA-512,
    /// and signing-certificate-v2 (RFC 5035), where there is one. The certificate is not validated.
    package func verify(_ content: [UInt8]) throws(OpenSSLError) {
        let others = certificates.filter { $0 != signerCertificate }
        let chain = try CertificateStack(
            ([signerCertificate].compactMap(\.self) + others).map { der throws(OpenSSLError) in
                try CertificateHandle(der, in: library)
            })
        guard signerCertificate != nil else {
            throw OpenSSLError("CMS_verify", refusing: "the message has no certificate of its signer")
        }
        let digest = OpenSSLLibrary.digest(of: signer)
        guard ["SHA256", "SHA384", "SHA512"].contains(digest) else {
            throw OpenSSLError("CMS_verify", refusing: "the digest is by \(digest)", isAlgorithm: true)
        }
        try verifyNamedCertificate(chain)
        let data = try MemoryBIO(content)
        OpenSSLError.clear()
        let flags = UInt32(CMS_NOINTERN | CMS_NO_SIGNER_CERT_VERIFY | CMS_BINARY)
        guard CMS_verify(message.pointer, chain.pointer, nil, data.pointer, nil, flags) == 1 else {
            throw OpenSSLError("CMS_verify")
        }
    }

    /// Another certificate of the same key would have another subject.
    private func verifyNamedCertificate(_ chain: CertificateStack) throws(OpenSSLError) {
        let type = OBJ_nid2obj(NID_id_smime_aa_signingCertificateV2)
        guard CMS_signed_get_attr_by_OBJ(signer, type, -1) >= 0 else { return }
        OpenSSLError.clear()
        // -3: the one attribute of this type, with one value.
        guard let value = CMS_signed_get0_data_by_OBJ(signer, type, -3, V_ASN1_SEQUENCE) else {
            throw OpenSSLError("CMS_signed_get0_data_by_OBJ")
        }
        let string = value.assumingMemoryBound(to: ASN1_STRING.self)
        var position = ASN1_STRING_get0_data(string)
        guard let named = d2i_ESS_SIGNING_CERT_V2(nil, &position, Int(ASN1_STRING_length(string))) else {
            throw OpenSSLError("d2i_ESS_SIGNING_CERT_V2")
        }
        defer { ESS_SIGNING_CERT_V2_free(named) }
        guard OSSL_ESS_check_signing_certs(nil, named, chain.pointer, 1) > 0 else {
            throw OpenSSLError("OSSL_ESS_check_signing_certs")
        }
    }
}

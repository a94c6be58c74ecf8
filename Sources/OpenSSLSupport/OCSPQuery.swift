internal import COpenSSL
package import FoundationEssentials

/// A question about a certificate to its CA's OCSP server, and the judgement of an answer (RFC 6960): an `OCSP_REQUEST`.
///
/// It has no nonce: most public servers answer with what they have signed before (RFC 5019).
package final class OCSPQuery {
    /// The state of the certificate, by an answer.
    package enum Status: Sendable {
        /// It is not revoked. The signer of the answer, DER, is there if it can be revoked itself: a certificate that the CA has issued for
        /// this, without `id-pkix-ocsp-nocheck` (section 4.2.2.2.1).
        case good(revocableSigner: [UInt8]?)
        case revoked(since: Date?)
    }

    /// The most seconds that a server's clock may be ahead.
    package static let maximumSkew: TimeInterval = 300
    /// The most seconds that an answer holds that does not say until when.
    private static let maximumAge: TimeInterval = 3600

    private let pointer: OpaquePointer
    private let identifier: OpaquePointer
    private let issuer: CertificateHandle
    /// The request, DER.
    package let derRepresentation: [UInt8]

    /// - Parameters:
    ///   - certificate: DER.
    ///   - issuer: The certificate of its CA, DER.
    package init(
        about certificate: [UInt8], issuedBy issuer: [UInt8], in library: OpenSSLLibrary
    ) throws(OpenSSLError) {
        let certificate = try CertificateHandle(certificate, in: library)
        self.issuer = try CertificateHandle(issuer, in: library)
        OpenSSLError.clear()
        // SHA-1 only names the CA here, and all servers know it (RFC 5019, section 2.1.1).
        guard let identifier = OCSP_cert_to_id(EVP_sha1(), certificate.pointer, self.issuer.pointer) else {
            throw OpenSSLError("OCSP_cert_to_id")
        }
        guard let request = OCSP_REQUEST_new(), OCSP_request_add0_id(request, identifier) != nil else {
            OCSP_CERTID_free(identifier)
            throw OpenSSLError("OCSP_request_add0_id")
        }
        (pointer, self.identifier) = (request, identifier)
        derRepresentation = try OpenSSLLibrary.encode("i2d_OCSP_REQUEST") { i2d_OCSP_REQUEST(request, $0) }
    }

    deinit { OCSP_REQUEST_free(pointer) }

    /// Returns what an answer says that counts: it is signed by the CA, or by a certificate for OCSP that the CA itself has issued, not with
    /// SHA-1; it is about the certificate; and it holds at `date`. Trailing data is an error.
    package func status(in answer: [UInt8], at date: Date) throws(OpenSSLError) -> Status {
        OpenSSLError.clear()
        let (read, isWhole) = answer.withUnsafeBufferPointer { bytes in
            var position = bytes.baseAddress
            let response = d2i_OCSP_RESPONSE(nil, &position, bytes.count)
            return (response, position == bytes.baseAddress.map { $0 + bytes.count })
        }
        defer { OCSP_RESPONSE_free(read) }
        guard let response = read, isWhole else { throw Self.refusal("it is damaged, or not an OCSP answer") }
        let status = OCSP_response_status(response)
        guard status == OCSP_RESPONSE_STATUS_SUCCESSFUL, let basic = OCSP_response_get1_basic(response) else {
            let text = String(cString: OCSP_response_status_str(Int(status)))
            throw Self.refusal("the server's answer is '\(text)', without a status of the certificate")
        }
        defer { OCSP_BASICRESP_free(basic) }
        let signer = try verifiedSigner(of: basic, at: date)

        var (state, reason): (Int32, Int32) = (0, 0)
        var times: (revocation: Time, this: Time, next: Time) = (nil, nil, nil)
        guard
            OCSP_resp_find_status(basic, identifier, &state, &reason, &times.revocation, &times.this, &times.next) == 1
        else { throw Self.refusal("it is about another certificate") }
        if state == V_OCSP_CERTSTATUS_REVOKED { return .revoked(since: OpenSSLLibrary.date(times.revocation)) }
        guard state == V_OCSP_CERTSTATUS_GOOD else {
            throw Self.refusal("the server does not know the certificate")
        }
        guard let start = OpenSSLLibrary.date(times.this), start <= date + Self.maximumSkew else {
            throw Self.refusal("it begins later; check this host's clock")
        }
        guard OpenSSLLibrary.date(times.next) ?? start + Self.maximumAge >= date else {
            throw Self.refusal("it is overdue, of \(start.formatted(.iso8601))")
        }
        let isRevocable =
            X509_cmp(signer, issuer.pointer) != 0 && X509_get_ext_by_NID(signer, NID_id_pkix_OCSP_noCheck, -1) < 0
        return .good(
            revocableSigner: isRevocable ? try OpenSSLLibrary.encode("i2d_X509") { i2d_X509(signer, $0) } : nil)
    }

    private typealias Time = UnsafeMutablePointer<ASN1_GENERALIZEDTIME>?

    /// Returns the certificate of an answer's signer, which the answer or this object owns.
    private func verifiedSigner(of basic: OpaquePointer, at date: Date) throws(OpenSSLError) -> OpaquePointer {
        let store = try OpenSSLLibrary.store(trusting: [issuer], at: date)
        defer { X509_STORE_free(store) }
        let certificates = try CertificateStack([issuer])
        OpenSSLError.clear()
        guard OCSP_basic_verify(basic, certificates.pointer, store, 0) == 1 else {
            throw OpenSSLError("OCSP_basic_verify")
        }
        var digest = NID_undef
        if let algorithm = OCSP_resp_get0_tbs_sigalg(basic) {
            OBJ_find_sigid_algs(OBJ_obj2nid(algorithm.pointee.algorithm), &digest, nil)
        }
        guard ![NID_md5, NID_sha1].contains(digest) else { throw Self.refusal("it is signed with SHA-1 or weaker") }
        var signer: OpaquePointer?
        guard OCSP_resp_get0_signer(basic, &signer, certificates.pointer) == 1, let signer else {
            throw OpenSSLError("OCSP_resp_get0_signer")
        }
        return signer
    }

    private static func refusal(_ clause: String) -> OpenSSLError { OpenSSLError("OCSP", refusing: clause) }
}

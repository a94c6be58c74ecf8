internal import COpenSSL
package import CertificateProviding
package import FoundationEssentials

/// A request for a time stamp (RFC 3161, section 2.4.1): a `TS_REQ`.
package final class TimeStampQuery {
    fileprivate let pointer: OpaquePointer
    private let library: OpenSSLLibrary

    /// Makes a request with the certificate of the server wanted in the token.
    ///
    /// - Parameters:
    ///   - digest: Of the data to be stamped, by SHA-256.
    ///   - nonce: Written as a positive INTEGER.
    ///   - policy: An object identifier in dotted form; `nil` for the server's own choice.
    package init(
        sha256 digest: [UInt8], nonce: UInt64, policy: String?, in library: OpenSSLLibrary
    ) throws(OpenSSLError) {
        self.library = library
        OpenSSLError.clear()
        guard let request = TS_REQ_new() else { throw OpenSSLError("TS_REQ_new") }
        pointer = request
        guard TS_REQ_set_version(request, 1) == 1, TS_REQ_set_cert_req(request, 1) == 1 else {
            throw OpenSSLError("TS_REQ_set_version")
        }
        guard let imprint = TS_MSG_IMPRINT_new(), let algorithm = X509_ALGOR_new() else {
            throw OpenSSLError("TS_MSG_IMPRINT_new")
        }
        defer {
            TS_MSG_IMPRINT_free(imprint)
            X509_ALGOR_free(algorithm)
        }
        X509_ALGOR_set_md(algorithm, EVP_sha256())
        var bytes = digest
        guard TS_MSG_IMPRINT_set_algo(imprint, algorithm) == 1,
            TS_MSG_IMPRINT_set_msg(imprint, &bytes, Int32(clamping: bytes.count)) == 1,
            TS_REQ_set_msg_imprint(request, imprint) == 1
        else { throw OpenSSLError("TS_REQ_set_msg_imprint") }
        guard let number = ASN1_INTEGER_new() else { throw OpenSSLError("ASN1_INTEGER_new") }
        defer { ASN1_INTEGER_free(number) }
        guard ASN1_INTEGER_set_uint64(number, nonce) == 1, TS_REQ_set_nonce(request, number) == 1 else {
            throw OpenSSLError("TS_REQ_set_nonce")
        }
        if let policy {
            guard let object = OBJ_txt2obj(policy, 1) else { throw OpenSSLError("OBJ_txt2obj") }
            defer { ASN1_OBJECT_free(object) }
            guard TS_REQ_set_policy_id(request, object) == 1 else { throw OpenSSLError("TS_REQ_set_policy_id") }
        }
    }

    deinit { TS_REQ_free(pointer) }

    /// The request, DER.
    package func derRepresentation() throws(OpenSSLError) -> [UInt8] {
        try OpenSSLLibrary.encode("i2d_TS_REQ") { i2d_TS_REQ(pointer, $0) }
    }
}

/// The answer to a ``TimeStampQuery`` (RFC 3161, section 2.4.2): a `TS_RESP`.
package final class TimeStampReply {
    private let pointer: OpaquePointer
    private let library: OpenSSLLibrary

    /// Reads an answer. Trailing data is an error.
    package init(_ answer: [UInt8], in library: OpenSSLLibrary) throws(OpenSSLError) {
        self.library = library
        OpenSSLError.clear()
        var response = TS_RESP_new()
        let isWhole = answer.withUnsafeBufferPointer { bytes in
            var position = bytes.baseAddress
            // On failure, it frees the structure and leaves nil.
            return d2i_TS_RESP(&response, &position, bytes.count) != nil
                && position == bytes.baseAddress.map { $0 + bytes.count }
        }
        guard let response else { throw OpenSSLError("d2i_TS_RESP") }
        pointer = response
        guard isWhole else { throw OpenSSLError("d2i_TS_RESP", refusing: "trailing data") }
    }

    deinit { TS_RESP_free(pointer) }

    /// The token as it came, DER; `nil` without one.
    package var token: [UInt8]? {
        TS_RESP_get_token(pointer).flatMap { token in
            try? OpenSSLLibrary.encode("i2d_PKCS7") { i2d_PKCS7(token, $0) }
        }
    }

    /// The PKIStatus: 0 and 1 mean granted.
    package var status: Int {
        guard let info = TS_RESP_get_status_info(pointer), let status = TS_STATUS_INFO_get0_status(info) else {
            return -1
        }
        var value: Int64 = -1
        return ASN1_INTEGER_get_int64(&value, status) == 1 ? Int(value) : -1
    }

    /// The server's texts about the status, as they came.
    package var statusText: String {
        guard let info = TS_RESP_get_status_info(pointer), let texts = TS_STATUS_INFO_get0_text(info) else { return "" }
        return (0..<max(0, min(8, OPENSSL_sk_num(texts)))).compactMap { index in
            OPENSSL_sk_value(texts, index).map(OpaquePointer.init).map { text in
                let string = UnsafePointer<ASN1_STRING>(text)
                return String(
                    decoding: UnsafeBufferPointer(
                        start: ASN1_STRING_get0_data(string), count: Int(max(0, min(256, ASN1_STRING_length(string))))),
                    as: UTF8.self)
            }
        }.joined(separator: "; ")
    }

    /// Verifies the token, and returns it with its time.
    ///
    /// The imprint, the nonce and the policy are those of the query. There is one signer, which the token names by ESSCertID or
    /// ESSCertIDv2, whose extended key usage is timeStamping alone and critical, and whose chain leads to an anchor. Its signature and
    /// those of the chain, but for the anchor's, are not with SHA-1 or weaker: these can be forged.
    ///
    /// - Parameters:
    ///   - anchors: Certificates, DER. An intermediate certificate may be one.
    ///   - date: The time at which the chain must be valid.
    /// - Returns: The token, DER, and its genTime.
    package func token(
        for query: TimeStampQuery, anchors: [[UInt8]], at date: Date
    ) throws(OpenSSLError) -> (der: [UInt8], time: Date) {
        guard let original = TS_RESP_get_token(pointer) else {
            throw OpenSSLError("TS_RESP_get_token", refusing: "the answer has no token")
        }
        // The form that will be stored is verified, and not the one that the server has sent.
        let der = try OpenSSLLibrary.encode("i2d_PKCS7") { i2d_PKCS7(original, $0) }
        let token = try TimeStampToken(der, in: library)
        guard let check = TS_REQ_to_TS_VERIFY_CTX(query.pointer, nil) else {
            throw OpenSSLError("TS_REQ_to_TS_VERIFY_CTX")
        }
        try token.verify(check, anchors: anchors, among: [], at: date)
        return (der, token.time)
    }
}

/// A time-stamp token (RFC 3161, section 2.4.2).
package final class TimeStampToken {
    private let pointer: UnsafeMutablePointer<PKCS7>
    private let library: OpenSSLLibrary
    /// The time of the stamp (`genTime`).
    package let time: Date
    /// The digest of the stamped data.
    package let imprint: [UInt8]
    /// The hash function of the imprint; `nil` for one that is not accepted.
    package let imprintAlgorithm: DigestAlgorithm?
    /// The certificates of the token, DER; that of the signer first, where it can be told.
    package let certificates: [[UInt8]]

    /// Reads a token. Verifies nothing. Trailing data is an error.
    package init(_ der: [UInt8], in library: OpenSSLLibrary) throws(OpenSSLError) {
        OpenSSLError.clear()
        var isWhole = false
        let token = der.withUnsafeBufferPointer { bytes in
            var position = bytes.baseAddress
            defer { isWhole = position == bytes.baseAddress.map { $0 + bytes.count } }
            return d2i_PKCS7(nil, &position, bytes.count)
        }
        guard let token else { throw OpenSSLError("d2i_PKCS7") }
        (pointer, self.library) = (token, library)
        do throws(OpenSSLError) {
            guard isWhole else { throw OpenSSLError("d2i_PKCS7", refusing: "trailing data") }
            OpenSSLError.clear()
            guard let info = PKCS7_to_TS_TST_INFO(token) else { throw OpenSSLError("PKCS7_to_TS_TST_INFO") }
            defer { TS_TST_INFO_free(info) }
            guard let time = OpenSSLLibrary.date(TS_TST_INFO_get_time(info)) else {
                throw OpenSSLError("ASN1_TIME_to_tm")
            }
            self.time = time
            guard let imprint = TS_TST_INFO_get_msg_imprint(info), let message = TS_MSG_IMPRINT_get_msg(imprint),
                let algorithm = TS_MSG_IMPRINT_get_algo(imprint)
            else { throw OpenSSLError("TS_TST_INFO_get_msg_imprint") }
            self.imprint = Array(
                UnsafeBufferPointer(
                    start: ASN1_STRING_get0_data(message), count: Int(ASN1_STRING_length(message))))
            imprintAlgorithm =
                switch OBJ_obj2nid(algorithm.pointee.algorithm) {
                case NID_sha256: .sha256
                case NID_sha384: .sha384
                case NID_sha512: .sha512
                default: nil
                }
            let signers = CertificateStack(adopting: PKCS7_get0_signers(token, nil, 0))
            // The stack holds no references of its own.
            for index in 0..<max(0, OPENSSL_sk_num(signers.pointer)) {
                X509_up_ref(OPENSSL_sk_value(signers.pointer, index).map(OpaquePointer.init))
            }
            certificates = try signers.derRepresentations()
        } catch {
            PKCS7_free(token)
            throw error
        }
    }

    deinit { PKCS7_free(pointer) }

    /// Verifies the token's signature: as ``TimeStampReply/token(for:anchors:at:)``, but for the imprint, which the caller compares.
    ///
    /// - Parameter candidates: Certificates, DER, that the chain may go through, beside those of the token.
    package func verify(
        anchors: [[UInt8]], among candidates: [[UInt8]] = [], at date: Date
    ) throws(OpenSSLError) {
        OpenSSLError.clear()
        guard let check = TS_VERIFY_CTX_new() else { throw OpenSSLError("TS_VERIFY_CTX_new") }
        try verify(check, anchors: anchors, among: candidates, at: date)
    }

    /// - Parameter check: What else is verified. It is freed here.
    fileprivate func verify(
        _ check: OpaquePointer, anchors: [[UInt8]], among candidates: [[UInt8]], at date: Date
    ) throws(OpenSSLError) {
        defer { TS_VERIFY_CTX_free(check) }
        let anchors = try anchors.map { der throws(OpenSSLError) in try CertificateHandle(der, in: library) }
        // The context frees the store.
        TS_VERIFY_CTX_set_store(check, try OpenSSLLibrary.store(trusting: anchors, at: date))
        TS_VERIFY_CTX_add_flags(check, Self.verifiesSignature)
        let others = try CertificateStack(candidates.compactMap { try? CertificateHandle($0, in: library) })
        // The context frees this stack.
        TS_VERIFY_CTX_set_certs(check, X509_chain_up_ref(others.pointer))
        OpenSSLError.clear()
        guard TS_RESP_verify_token(check, pointer) == 1 else { throw OpenSSLError(explained: "TS_RESP_verify_token") }
        guard Self.isSignedWithSHA2Or3(pointer) else {
            throw OpenSSLError("TS_RESP_verify_token", refusing: "the time stamp is not signed with SHA-2 or SHA-3")
        }
    }

    /// The signature is with the digest of the signer's attributes.
    private static func isSignedWithSHA2Or3(_ token: UnsafeMutablePointer<PKCS7>) -> Bool {
        let signers = PKCS7_get_signer_info(token)
        let count = OPENSSL_sk_num(signers)
        return count > 0
            && (0..<count).allSatisfy { index in
                guard let signer = OPENSSL_sk_value(signers, index)?.assumingMemoryBound(to: PKCS7_SIGNER_INFO.self),
                    let digest = signer.pointee.digest_alg
                else { return false }
                return digests.contains(OBJ_obj2nid(digest.pointee.algorithm))
            }
    }

    private static let digests: Set<Int32> = [
        NID_sha256, NID_sha384, NID_sha512, NID_sha512_256, NID_sha3_256, NID_sha3_384, NID_sha3_512,
    ]

    /// TS_VFY_SIGNATURE, which Swift does not import.
    private static let verifiesSignature: Int32 = 1
}

extension OpenSSLError {
    /// Whether a time stamp's signer has no valid chain to an anchor, or is not for time stamps; otherwise the answer is wrong.
    package var refusesTimeStampSigner: Bool {
        entries.contains { $0.library == ERR_LIB_TS && $0.reason == TS_R_CERTIFICATE_VERIFY_ERROR }
    }
}

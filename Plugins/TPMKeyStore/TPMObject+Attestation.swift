import CTSS
import CertificateProviding

/// A structure that a TPM has signed.
struct TPMStatement: Sendable {
    /// `TPMS_ATTEST`.
    let info: [UInt8]
    /// `TPMT_SIGNATURE`.
    let signature: [UInt8]
}

extension TPMConnection {
    /// The endorsement key, which is derived from a seed of the TPM's maker.
    func endorsementKey() throws(TPMFailure) -> TPMObject {
        do throws(TPMFailure) { return try primary(ESYS_TR(ESYS_TR_RH_ENDORSEMENT), .endorsementKey) } catch {
            var error = error
            error.authorisation = .endorsement
            throw error
        }
    }

    /// The certificate of the endorsement key, DER; `nil` if the TPM has none, as many virtual ones.
    func endorsementCertificate() -> [UInt8]? {
        // For the key of RSA 2048 (TCG EK Credential Profile, section 2.2.1.4).
        var handle = ESYS_TR()
        guard Esys_TR_FromTPMPublic(esys, 0x01c0_0002, .none, .none, .none, &handle) == TSS2_RC(TSS2_RC_SUCCESS) else {
            return nil
        }
        defer { _ = Esys_TR_Close(esys, &handle) }
        var certificate: [UInt8] = []
        // SEQUENCE with a size of two bytes: what follows it is padding.
        var size = 4
        while certificate.count < size {
            var part: UnsafeMutablePointer<TPM2B_MAX_NV_BUFFER>?
            defer { Esys_Free(part) }
            let wanted = UInt16(min(512, size - certificate.count))
            let code = Esys_NV_Read(
                esys, handle, handle, .password, .none, .none, wanted, UInt16(certificate.count), &part)
            guard code == TSS2_RC(TSS2_RC_SUCCESS), let part, part.pointee.size == wanted else { return nil }
            certificate += withUnsafeBytes(of: &part.pointee.buffer) { $0.prefix(Int(wanted)) }
            if size == 4 {
                guard certificate[0] == 0x30, certificate[1] == 0x82 else { return nil }
                size += Int(certificate[2]) << 8 | Int(certificate[3])
                guard size <= 4096 else { return nil }
            }
        }
        return certificate
    }
}

/// The commands by which a TPM proves that a key is in it (TPM 2.0 Part 1, sections 24 and 31).
extension TPMObject {
    func readPublicArea() throws(TPMFailure) -> TPMPublicArea {
        var area: UnsafeMutablePointer<TPM2B_PUBLIC>?
        defer { Esys_Free(area) }
        try TPMFailure.check(
            Esys_ReadPublic(connection.esys, handle, .none, .none, .none, &area, nil, nil), "TPM2_ReadPublic")
        return TPMPublicArea(bytes: try marshalled(area, Tss2_MU_TPM2B_PUBLIC_Marshal))
    }

    /// Certifies by this key that another one is in the TPM.
    func certify(_ key: borrowing TPMObject, covering data: [UInt8]) throws(TPMFailure) -> TPMStatement {
        let (esys, subject, signer) = (connection.esys, key.handle, handle)
        return try Self.statement("TPM2_Certify", covering: data) { data, scheme, info, signature in
            Esys_Certify(esys, subject, signer, .password, .password, .none, data, scheme, info, signature)
        }
    }

    /// Certifies by this key that the TPM has made it.
    func certifyCreation(of made: TPMMadeKey) throws(TPMFailure) -> TPMStatement {
        var hash = try unmarshalled(made.creationHash, TPM2B_DIGEST(), Tss2_MU_TPM2B_DIGEST_Unmarshal)
        var ticket = try unmarshalled(made.creationTicket, TPMT_TK_CREATION(), Tss2_MU_TPMT_TK_CREATION_Unmarshal)
        let (esys, key) = (connection.esys, handle)
        return try Self.statement("TPM2_CertifyCreation", covering: []) { data, scheme, info, signature in
            Esys_CertifyCreation(
                esys, key, key, .password, .none, .none, data, &hash, scheme, &ticket, info, signature)
        }
    }

    private static func statement(
        _ function: String, covering data: [UInt8],
        _ command: (
            UnsafePointer<TPM2B_DATA>, UnsafePointer<TPMT_SIG_SCHEME>,
            UnsafeMutablePointer<UnsafeMutablePointer<TPM2B_ATTEST>?>,
            UnsafeMutablePointer<UnsafeMutablePointer<TPMT_SIGNATURE>?>
        ) -> TSS2_RC
    ) throws(TPMFailure) -> TPMStatement {
        var data = try unmarshalled(data.tpmSized, TPM2B_DATA(), Tss2_MU_TPM2B_DATA_Unmarshal)
        // The scheme of the key.
        var scheme = TPMT_SIG_SCHEME()
        scheme.scheme = TPMAlgorithm.null
        var info: UnsafeMutablePointer<TPM2B_ATTEST>?
        var signature: UnsafeMutablePointer<TPMT_SIGNATURE>?
        defer {
            Esys_Free(info)
            Esys_Free(signature)
        }
        try TPMFailure.check(command(&data, &scheme, &info, &signature), function)
        return TPMStatement(
            info: Array(try marshalled(info, Tss2_MU_TPM2B_ATTEST_Marshal).dropFirst(2)),
            signature: try marshalled(signature, Tss2_MU_TPMT_SIGNATURE_Marshal))
    }

    /// Opens a credential that was made for this key and the endorsement key of its TPM.
    ///
    /// - Parameters:
    ///   - credential: `TPM2B_ID_OBJECT`.
    ///   - secret: `TPM2B_ENCRYPTED_SECRET`.
    func activate(
        _ credential: [UInt8], _ secret: [UInt8], by endorsementKey: borrowing TPMObject
    ) throws(TPMFailure) -> SecretBytes {
        var credential = try unmarshalled(credential, TPM2B_ID_OBJECT(), Tss2_MU_TPM2B_ID_OBJECT_Unmarshal)
        var secret = try unmarshalled(
            secret, TPM2B_ENCRYPTED_SECRET(), Tss2_MU_TPM2B_ENCRYPTED_SECRET_Unmarshal)
        let esys = connection.esys
        var session = ESYS_TR()
        var symmetric = TPMT_SYM_DEF()
        symmetric.algorithm = TPMAlgorithm.null
        try TPMFailure.check(
            Esys_StartAuthSession(
                esys, .none, .none, .none, .none, .none, nil, TPM2_SE(TPM2_SE_POLICY), &symmetric, TPMAlgorithm.sha256,
                &session),
            "TPM2_StartAuthSession")
        // The TPM ends it itself after the command that it is for.
        defer { _ = Esys_FlushContext(esys, session) }
        try TPMFailure.check(
            Esys_PolicySecret(
                esys, ESYS_TR(ESYS_TR_RH_ENDORSEMENT), session, .password, .none, .none, nil, nil, nil, 0, nil, nil),
            "TPM2_PolicySecret")
        var opened: UnsafeMutablePointer<TPM2B_DIGEST>?
        defer {
            if let opened { withUnsafeMutableBytes(of: &opened.pointee) { wipe($0) } }
            Esys_Free(opened)
        }
        try TPMFailure.check(
            Esys_ActivateCredential(
                esys, handle, endorsementKey.handle, .password, session, .none, &credential, &secret, &opened),
            "TPM2_ActivateCredential")
        guard let opened else { throw TPMFailure.malformed("TPM2_ActivateCredential") }
        return withUnsafeBytes(of: &opened.pointee.buffer) { SecretBytes(copying: $0.prefix(Int(opened.pointee.size))) }
    }
}

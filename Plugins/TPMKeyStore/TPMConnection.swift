import CTSS
import CertificateProviding
import Glibc

/// A connection to a TPM, for one call: whatever the call leaves ends with it, and a TPM that was restarted is found again.
///
/// Used by one thread at a time.
final class TPMConnection {
    private var transport: OpaquePointer?
    let esys: OpaquePointer

    /// Connects.
    ///
    /// - Parameter tcti: As `Tss2_TctiLdr_Initialize` takes it, such as `device:/dev/tpmrm0`.
    init(_ tcti: String) throws(TPMFailure) {
        _ = Self.silence
        var transport: OpaquePointer?
        try TPMFailure.check(Tss2_TctiLdr_Initialize(tcti, &transport), "Tss2_TctiLdr_Initialize")
        var esys: OpaquePointer?
        let code = Esys_Initialize(&esys, transport, nil)
        guard code == TSS2_RC(TSS2_RC_SUCCESS), let esys else {
            Tss2_TctiLdr_Finalize(&transport)
            throw TPMFailure(code: code, function: "Esys_Initialize")
        }
        (self.transport, self.esys) = (transport, esys)
    }

    deinit {
        var esys = Optional(esys)
        Esys_Finalize(&esys)
        Tss2_TctiLdr_Finalize(&transport)
    }

    /// libtss2 reports each error on standard error by itself. It reads the variable once, at its first message.
    private static let silence: Void = { setenv("TSS2_LOG", "all+NONE", 0) }()

    /// The storage key that a key is beneath.
    ///
    /// - Parameter owner: The authorisation of the owner hierarchy, for the key that is derived from its seed.
    func parent(_ parent: TPMParent, owner: SecretBytes?) throws(TPMFailure) -> TPMObject {
        switch parent {
        case .persistent(let number):
            var handle = ESYS_TR()
            try TPMFailure.check(
                Esys_TR_FromTPMPublic(esys, number, .none, .none, .none, &handle), "Esys_TR_FromTPMPublic")
            return TPMObject(self, handle, isTransient: false)
        case .owner:
            if let owner {
                var auth = try Self.digest(owner)
                defer { withUnsafeMutableBytes(of: &auth) { wipe($0) } }
                try TPMFailure.check(Esys_TR_SetAuth(esys, ESYS_TR(ESYS_TR_RH_OWNER), &auth), "Esys_TR_SetAuth")
            }
            return try primary(ESYS_TR(ESYS_TR_RH_OWNER), .storageKey)
        }
    }

    /// The key that the TPM derives from the seed of a hierarchy.
    func primary(_ hierarchy: ESYS_TR, _ template: TPMPublicArea) throws(TPMFailure) -> TPMObject {
        var handle = ESYS_TR()
        var (sensitive, data, registers) = (TPM2B_SENSITIVE_CREATE(), TPM2B_DATA(), TPML_PCR_SELECTION())
        var template = try template.structure()
        try TPMFailure.check(
            Esys_CreatePrimary(
                esys, hierarchy, .password, .none, .none, &sensitive, &template, &data, &registers, &handle, nil, nil,
                nil,
                nil),
            "TPM2_CreatePrimary")
        return TPMObject(self, handle, isTransient: true)
    }

    private static func digest(_ secret: SecretBytes) throws(TPMFailure) -> TPM2B_DIGEST {
        try secret.withUnsafeBytes { bytes throws(TPMFailure) in
            var sized = Array(bytes).tpmSized
            defer { sized.withUnsafeMutableBytes { wipe($0) } }
            return try unmarshalled(sized, TPM2B_DIGEST(), Tss2_MU_TPM2B_DIGEST_Unmarshal)
        }
    }
}

/// A key as its TPM has made it.
struct TPMMadeKey: Sendable {
    let publicArea: TPMPublicArea
    /// `TPM2B_PRIVATE`, which only this TPM can read.
    let privatePart: [UInt8]
    /// `TPM2B_CREATION_DATA`.
    let creationData: [UInt8]
    /// `TPM2B_DIGEST`.
    let creationHash: [UInt8]
    /// `TPMT_TK_CREATION`.
    let creationTicket: [UInt8]
}

/// An object in a TPM, with one owner. It is flushed when it goes, also after an error.
struct TPMObject: ~Copyable {
    let connection: TPMConnection
    let handle: ESYS_TR
    private let isTransient: Bool

    fileprivate init(_ connection: TPMConnection, _ handle: ESYS_TR, isTransient: Bool) {
        (self.connection, self.handle, self.isTransient) = (connection, handle, isTransient)
    }

    deinit {
        var handle = handle
        _ = isTransient ? Esys_FlushContext(connection.esys, handle) : Esys_TR_Close(connection.esys, &handle)
    }

    /// Loads a key beneath this one.
    func load(_ key: TPMKeyBlob) throws(TPMFailure) -> TPMObject { try load(key.publicArea, key.privatePart) }
    func load(_ key: TPMMadeKey) throws(TPMFailure) -> TPMObject { try load(key.publicArea, key.privatePart) }

    /// As ``load(_:)``; `nil` for a key of another TPM, or of this one before it was cleared.
    func find(_ key: TPMKeyBlob) throws(TPMFailure) -> TPMObject? {
        do throws(TPMFailure) { return try load(key) } catch {
            guard error.isOfAnotherTPM else { throw error }
            return nil
        }
    }

    private func load(_ publicArea: TPMPublicArea, _ privatePart: [UInt8]) throws(TPMFailure) -> TPMObject {
        var key = ESYS_TR()
        var publicPart = try publicArea.structure()
        var privatePart = try unmarshalled(privatePart, TPM2B_PRIVATE(), Tss2_MU_TPM2B_PRIVATE_Unmarshal)
        try TPMFailure.check(
            Esys_Load(connection.esys, handle, .password, .none, .none, &privatePart, &publicPart, &key), "TPM2_Load")
        return TPMObject(connection, key, isTransient: true)
    }

    /// Makes a key beneath this one. Nothing of it stays in the TPM.
    ///
    func make(_ template: TPMPublicArea) throws(TPMFailure) -> TPMMadeKey {
        var (sensitive, data, registers) = (TPM2B_SENSITIVE_CREATE(), TPM2B_DATA(), TPML_PCR_SELECTION())
        var template = try template.structure()
        var publicPart: UnsafeMutablePointer<TPM2B_PUBLIC>?
        var privatePart: UnsafeMutablePointer<TPM2B_PRIVATE>?
        var creation: UnsafeMutablePointer<TPM2B_CREATION_DATA>?
        var hash: UnsafeMutablePointer<TPM2B_DIGEST>?
        var ticket: UnsafeMutablePointer<TPMT_TK_CREATION>?
        defer {
            Esys_Free(publicPart)
            Esys_Free(privatePart)
            Esys_Free(creation)
            Esys_Free(hash)
            Esys_Free(ticket)
        }
        try TPMFailure.check(
            Esys_Create(
                connection.esys, handle, .password, .none, .none, &sensitive, &template, &data, &registers,
                &privatePart, &publicPart, &creation, &hash, &ticket),
            "TPM2_Create")
        return TPMMadeKey(
            publicArea: TPMPublicArea(bytes: try marshalled(publicPart, Tss2_MU_TPM2B_PUBLIC_Marshal)),
            privatePart: try marshalled(privatePart, Tss2_MU_TPM2B_PRIVATE_Marshal),
            creationData: try marshalled(creation, Tss2_MU_TPM2B_CREATION_DATA_Marshal),
            creationHash: try marshalled(hash, Tss2_MU_TPM2B_DIGEST_Marshal),
            creationTicket: try marshalled(ticket, Tss2_MU_TPMT_TK_CREATION_Marshal))
    }

    /// Signs a digest.
    ///
    /// - Parameter scheme: A `TPMT_SIG_SCHEME`.
    /// - Returns: A `TPMT_SIGNATURE`.
    func sign(_ digest: [UInt8], _ scheme: [UInt8]) throws(TPMFailure) -> [UInt8] {
        var digest = try unmarshalled(digest.tpmSized, TPM2B_DIGEST(), Tss2_MU_TPM2B_DIGEST_Unmarshal)
        var scheme = try unmarshalled(scheme, TPMT_SIG_SCHEME(), Tss2_MU_TPMT_SIG_SCHEME_Unmarshal)
        // The digest need not be the TPM's own: the key is not restricted.
        var ticket = TPMT_TK_HASHCHECK()
        (ticket.tag, ticket.hierarchy) = (TPM2_ST(TPM2_ST_HASHCHECK), TPMI_RH_HIERARCHY(TPM2_RH_NULL))
        var signature: UnsafeMutablePointer<TPMT_SIGNATURE>?
        defer { Esys_Free(signature) }
        try TPMFailure.check(
            Esys_Sign(connection.esys, handle, .password, .none, .none, &digest, &scheme, &ticket, &signature),
            "TPM2_Sign")
        return try marshalled(signature, Tss2_MU_TPMT_SIGNATURE_Marshal)
    }

    /// Decrypts with an RSA key.
    ///
    /// - Parameter scheme: A `TPMT_RSA_DECRYPT`.
    func decrypt(_ ciphertext: [UInt8], _ scheme: [UInt8]) throws(TPMFailure) -> SecretBytes {
        var ciphertext = try unmarshalled(
            ciphertext.tpmSized, TPM2B_PUBLIC_KEY_RSA(), Tss2_MU_TPM2B_PUBLIC_KEY_RSA_Unmarshal)
        var scheme = try unmarshalled(scheme, TPMT_RSA_DECRYPT(), Tss2_MU_TPMT_RSA_DECRYPT_Unmarshal)
        var label = TPM2B_DATA()
        var plaintext: UnsafeMutablePointer<TPM2B_PUBLIC_KEY_RSA>?
        defer {
            if let plaintext { withUnsafeMutableBytes(of: &plaintext.pointee) { wipe($0) } }
            Esys_Free(plaintext)
        }
        try TPMFailure.check(
            Esys_RSA_Decrypt(
                connection.esys, handle, .password, .none, .none, &ciphertext, &scheme, &label, &plaintext),
            "TPM2_RSA_Decrypt")
        guard let plaintext else { throw TPMFailure.malformed("TPM2_RSA_Decrypt") }
        return withUnsafeBytes(of: &plaintext.pointee.buffer) { buffer in
            SecretBytes(copying: buffer.prefix(Int(plaintext.pointee.size)))
        }
    }
}

extension ESYS_TR {
    static let none = ESYS_TR(ESYS_TR_NONE)
    /// An authorisation by password, which is empty for a key: it needs no session, and so leaves none.
    static let password = ESYS_TR(ESYS_TR_PASSWORD)
}

extension TPMPublicArea {
    func structure() throws(TPMFailure) -> TPM2B_PUBLIC {
        try unmarshalled(bytes, TPM2B_PUBLIC(), Tss2_MU_TPM2B_PUBLIC_Unmarshal)
    }
}

/// Returns a structure of the C library from its bytes.
func unmarshalled<T>(
    _ bytes: [UInt8], _ empty: T,
    _ function: (UnsafePointer<UInt8>?, Int, UnsafeMutablePointer<Int>?, UnsafeMutablePointer<T>?) -> TSS2_RC
) throws(TPMFailure) -> T {
    var (value, offset) = (empty, 0)
    try TPMFailure.check(function(bytes, bytes.count, &offset, &value), "unmarshal \(T.self)")
    guard offset == bytes.count else { throw TPMFailure.malformed("unmarshal \(T.self)") }
    return value
}

/// Returns the bytes of a structure of the C library.
func marshalled<T>(
    _ value: UnsafeMutablePointer<T>?,
    _ function: (UnsafePointer<T>?, UnsafeMutablePointer<UInt8>?, Int, UnsafeMutablePointer<Int>?) -> TSS2_RC
) throws(TPMFailure) -> [UInt8] {
    var (bytes, count) = ([UInt8](repeating: 0, count: 4096), 0)
    try TPMFailure.check(function(value, &bytes, bytes.count, &count), "marshal \(T.self)")
    return Array(bytes.prefix(count))
}

func wipe(_ bytes: UnsafeMutableRawBufferPointer) {
    if let start = bytes.baseAddress { explicit_bzero(start, bytes.count) }
}

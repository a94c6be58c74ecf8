import CP11Kit
import CertificateProviding
import Crypto

extension TokenKeys {
    /// The octets by which certificates, public and private keys are matched. Tools take any; 16 fit into every token.
    private static func freshID() -> [UInt8] { SymmetricKey(size: .bits128).withUnsafeBytes { Array($0) } }

    /// Makes a key pair that never leaves the token. Leaves nothing behind where it fails: what cannot be destroyed at
    /// once is the next time that the token is written to.
    func generate(
        _ type: KeyType, label: String, for use: KeyUse = .signing
    ) throws(ProviderError) -> MadeKey {
        guard use.decryptionSchemes.isEmpty || type.isRSA else {
            throw ProviderError(
                .unsupportedAlgorithm, "Keys of type \(type) cannot decrypt; choose an RSA key.")
        }
        let id = Self.freshID()
        let entry = try token.pending.begin(id, on: token.identity)
        var mayBeLeft = false
        do throws(ProviderError) {
            let made = try write { connection, session throws(CryptokiError) in
                // The objects of an attempt that the removal of the token has interrupted.
                if mayBeLeft { try session.destroyAll(id: id) }
                mayBeLeft = true
                var made: [CK_OBJECT_HANDLE] = []
                do throws(CryptokiError) {
                    let isStrict = !token.module.losesLoadedKeys
                    let templates = KeyPairTemplate.all(
                        type, id: id, label: label, for: use, forbidsDecryption: isStrict,
                        allowing: isStrict ? connection.mechanisms.restriction(to: use) : nil)
                    let pair = try generate(templates, id: id, in: session)
                    made = [pair.privateKey, pair.publicKey]
                    return try key(pair, id: id, connection, session)
                } catch {
                    for object in made { try? session.destroy(object) }
                    // Without a login the private key would only not be there to see.
                    if (try? session.destroyAll(id: id)) != nil, (try? connection.seesEverything(session)) == true {
                        mayBeLeft = false
                    }
                    throw error
                }
            }
            return MadeKey(key: made, entry: entry)
        } catch {
            if !mayBeLeft { try? entry.end() }
            throw error
        }
    }

    /// Makes a key pair in the first of the mechanisms that the module takes. Modules refuse a template with any code.
    ///
    /// - Throws: The first failure that is not about the template, where there is one: a broken device is not a key
    ///   that it does not support.
    private func generate(
        _ templates: [KeyPairTemplate], id: [UInt8], in session: Session
    ) throws(CryptokiError) -> (publicKey: CK_OBJECT_HANDLE, privateKey: CK_OBJECT_HANDLE) {
        var failure: CryptokiError?
        for template in templates {
            // A failed attempt may have made objects. If they cannot be destroyed, there is no further attempt.
            if let failure, (try? session.destroyAll(id: id)) == nil { throw failure }
            do throws(CryptokiError) {
                return try session.generate(
                    template.mechanism, publicKey: template.publicKey, privateKey: template.privateKey)
            } catch {
                guard token.specific(error).permitsShorterTemplate else { throw error }
                if failure?.isAboutTemplate ?? true { failure = error }
            }
        }
        throw failure ?? CryptokiError(function: "C_GenerateKeyPair", code: CKR_MECHANISM_INVALID)
    }

    /// Reads back what the module made: some choose the id themselves, make the public key object later, or ignore
    /// that a key is to stay where it is.
    private func key(
        _ pair: (publicKey: CK_OBJECT_HANDLE, privateKey: CK_OBJECT_HANDLE), id: [UInt8],
        _ connection: TokenConnection, _ session: Session
    ) throws(CryptokiError) -> TokenKey {
        let reader = TokenReader(session: session, slot: connection.slot)
        let actualID = try session.attribute(CKA_ID, of: pair.privateKey) ?? id
        var made = try reader.publicKey(pair.publicKey)
        if made == nil { made = try reader.publicKeys(id: actualID).first?.key }
        guard try session.flag(CKA_SENSITIVE, of: pair.privateKey) ?? true,
            try session.flag(CKA_EXTRACTABLE, of: pair.privateKey) != true,
            let publicKey = made,
            let privateKey = try reader.privateKey(pair.privateKey), privateKey.mayBe(publicKey)
        else { throw CryptokiError(function: "C_GenerateKeyPair", code: CKR_TEMPLATE_INCONSISTENT) }
        let key = try tokenKey(privateKey, publicKey, connection, session)
        guard !key.mechanisms.isEmpty else { throw CryptokiError(function: "C_SignInit", code: CKR_MECHANISM_INVALID) }
        return key
    }
}

/// A key pair that was made and not handed over yet: if its process ends, its objects are destroyed.
struct MadeKey: Sendable {
    let key: TokenKey
    fileprivate let entry: PendingKeys.Entry

    /// Call it once another record names the key.
    func handOver() throws(ProviderError) { try entry.end() }

    /// Destroys it, also if it cannot sign: no other object has its id, unless the module has chosen the id itself.
    /// - Throws: `deleteFailed`, naming the remaining objects. The next writer to the token tries again.
    func takeBack() throws(ProviderError) {
        if key.id == entry.id { try key.token.keys.destroyAll(id: key.id) } else { try key.token.keys.discard(key) }
        try entry.end()
    }

    /// Appends to `reason` that the new key pair could not be removed.
    func left(
        by failure: ProviderError, after reason: ProviderError
    ) -> ProviderError {
        var reason = reason
        reason.message +=
            " The new key pair, id \(DisplayText.hexadecimal(key.id)), may still be on the token: \(failure.message)"
        return reason
    }
}

extension Module {
    /// Whether a key that is refused or destroyed while it is loaded stays in the token's memory: tpm2-pkcs11 (seen in
    /// 1.9.0) makes a key, then refuses its template (`CKA_DECRYPT` false) with `CKR_GENERAL_ERROR`; and it destroys a key
    /// that has signed since the login. A TPM without a resource manager has room for three objects: then every login
    /// fails until it is reset. A logout unloads them.
    var losesLoadedKeys: Bool { text(info.manufacturerID) == "tpm2-software.github.io" }
}

import CP11Kit
import CertificateProviding

extension Token {
    /// Lends a session for reading and writing on which the user is logged in. Where the token was removed or reset,
    /// connects again and calls `body` once more, which therefore looks for what its first call has left.
    func write<T>(
        _ body: (TokenConnection, Session) throws(CryptokiError) -> T
    ) throws(CertificateProviderError) -> T {
        let result = try withConnection(loggedIn: true) {
            connection throws(CryptokiError) -> Result<T, CryptokiError> in
            do throws(CryptokiError) {
                try connection.slot.requireWritable()
                return .success(
                    try connection.sessions.withSession(writing: true) { session throws(CryptokiError) in
                        destroyOrphans(in: session)
                        return try body(connection, session)
                    })
            } catch {
                if error.endsConnection, !error.isUnspecific, error.code != CKR_DEVICE_ERROR { throw error }
                // What a broken device has written nobody knows: `body` is not called again.
                if error.endsConnection { forget(connection) }
                return .failure(specific(error))
            }
        }
        do throws(CryptokiError) { return try result.get() } catch {
            throw CertificateProviderError(writing: error, token: displayName)
        }
    }

    /// Finds the private key of a public key that need not have a certificate.
    ///
    /// - Parameter id: A `CKA_ID` that it is expected under, for tokens without public key objects.
    func key(for publicKey: PublicKeyInfo, id: [UInt8]? = nil) throws(CertificateProviderError) -> TokenKey? {
        try withConnection(loggedIn: true) { connection throws(CryptokiError) in
            let found = try connection.sessions.withSession { session throws(CryptokiError) in
                try connection.findHidden(in: session) { () throws(CryptokiError) -> [TokenKey] in
                    let reader = TokenReader(session: session, slot: connection.slot)
                    var ids: [[UInt8]] = id.map { [$0] } ?? []
                    for (handle, key) in try reader.publicKeys() where key.isSameKey(as: publicKey) {
                        ids.append(try session.attribute(CKA_ID, of: handle) ?? [])
                    }
                    let privateKey = try reader.privateKeys().all(maximum: 1) { key throws(CryptokiError) in
                        guard key.modulus != nil || ids.contains(key.id) else { return false }
                        return try isPrivateHalf(key, of: publicKey, connection, session)
                    }.first
                    guard let privateKey else { return [] }
                    return [try tokenKey(privateKey, publicKey, connection, session)]
                }
            }
            guard let found else { throw TokenConnection.searchWithoutLogin }
            return found.first
        }
    }

    /// Finds the private keys under an id whose public keys are on the token as well.
    func keys(id: [UInt8]) throws(CertificateProviderError) -> [TokenKey] {
        let publicKeys = try withConnection(loggedIn: true) { connection throws(CryptokiError) in
            try connection.sessions.withSession { session throws(CryptokiError) in
                try TokenReader(session: session, slot: connection.slot).publicKeys(id: id).map(\.key)
            }
        }
        var keys: [TokenKey] = []
        for publicKey in publicKeys { if let key = try key(for: publicKey, id: id) { keys.append(key) } }
        return keys
    }

    func tokenKey(
        _ key: TokenReader.PrivateKey, _ publicKey: PublicKeyInfo, _ connection: TokenConnection, _ session: Session
    ) throws(CryptokiError) -> TokenKey {
        var canDecrypt = false
        if publicKey.algorithm == .rsa, connection.mechanisms.mayDecrypt,
            key.allowedMechanisms?.contains(CKM_RSA_PKCS) ?? true
        {
            canDecrypt = try session.flag(CKA_DECRYPT, of: key.handle) ?? false
        }
        return TokenKey(
            publicKey: publicKey,
            uri: PKCS11URI.text(of: connection.slot.token, class: CKO_PRIVATE_KEY, id: key.id, label: key.label),
            mechanisms: SigningMechanism.all(
                for: publicKey, mechanisms: connection.mechanisms, allowed: key.allowedMechanisms),
            id: key.id, token: self,
            canDecrypt: canDecrypt,
            label: String(validating: key.label, as: UTF8.self))
    }

    /// Whether a private key is that of a public key, which for most kinds only a signature tells. A `CKA_ID` does not:
    /// careless tools give every key the same one.
    func isPrivateHalf(
        _ key: TokenReader.PrivateKey, of publicKey: PublicKeyInfo, _ connection: TokenConnection, _ session: Session
    ) throws(CryptokiError) -> Bool {
        let mechanisms = SigningMechanism.all(
            for: publicKey, mechanisms: connection.mechanisms, allowed: key.allowedMechanisms)
        guard key.mayBe(publicKey), let scheme = mechanisms.first?.scheme else { return false }
        let probe = Self.probe()
        do throws(CryptokiError) {
            let signature = try session.sign(
                probe, with: key.handle, by: mechanisms.filter { $0.scheme == scheme }, modulusBits: publicKey.bits,
                authenticate: key.needsPINEachTime ? confirmation(on: connection) : nil)
            guard let encoded = try? signature.encoded(for: publicKey, token: displayName) else { return false }
            return publicKey.isValidSignature(encoded, for: probe, using: scheme)
        } catch {
            if error.isOfAnotherKind { return false }
            throw error
        }
    }
}

extension Slot {
    /// Looks at the token as it is now: protection is a switch on some.
    fileprivate func requireWritable() throws(CryptokiError) {
        if try lookedAtAgain().has(UInt(CKF_WRITE_PROTECTED)) {
            throw CryptokiError(function: "C_GetTokenInfo", code: CKR_TOKEN_WRITE_PROTECTED)
        }
    }
}

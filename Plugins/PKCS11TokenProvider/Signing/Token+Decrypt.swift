import CP11Kit
import CertificateProviding

extension Token {
    /// Returns the schemes that a private key decrypts by. Blocks.
    ///
    /// An offered scheme must work: a message that was encrypted by it would be lost otherwise. A token's list of mechanisms
    /// does not say which hashes it supports for OAEP, and modules refuse a hash in `C_DecryptInit`, in `C_Decrypt`, or take
    /// another one. So a key decrypts a probe once per scheme, token and process.
    func decryptionSchemes(
        of key: TokenReader.PrivateKey, _ publicKey: PublicKeyInfo, _ connection: TokenConnection, _ session: Session
    ) throws(CryptokiError) -> [DecryptionScheme] {
        let mechanisms = DecryptionMechanism.all.filter { mechanism in
            connection.mechanisms.mayDecrypt(mechanism.type, with: publicKey)
                && key.allowedMechanisms?.contains(mechanism.type) ?? true
        }
        guard publicKey.algorithm == .rsa, !publicKey.isRestrictedToPSS, !mechanisms.isEmpty,
            try session.flag(CKA_DECRYPT, of: key.handle) ?? false
        else { return [] }
        var schemes: [DecryptionScheme] = []
        for mechanism in mechanisms {
            if mechanism.hasVariants {
                guard try supports(mechanism, key, publicKey, connection, session) else { continue }
            }
            schemes.append(mechanism.scheme)
        }
        return schemes
    }

    /// Whether a key decrypts a probe by one of the variants of a mechanism, or one of the token has.
    private func supports(
        _ mechanism: DecryptionMechanism, _ key: TokenReader.PrivateKey, _ publicKey: PublicKeyInfo,
        _ connection: TokenConnection, _ session: Session
    ) throws(CryptokiError) -> Bool {
        if let known = knownSupport(of: mechanism.scheme) { return known }
        guard let authenticate = quietConfirmation(of: key, on: connection) else { return true }
        do throws(CryptokiError) {
            let isSupported = try session.decryptsProbe(
                of: publicKey, with: key.handle, by: mechanism, authenticate: authenticate.call)
            if isSupported { note(isSupported, of: mechanism.scheme) }
            return isSupported
        } catch {
            if error.isOfMechanismParameters { note(false, of: mechanism.scheme) }
            // Anything else may be about this key alone. A login that is lost shows with the key's next use.
            let isOfKey = !error.endsConnection || error.mayBeOfCiphertext || error.code == CKR_USER_NOT_LOGGED_IN
            guard isOfKey, error.isRepeatable else { throw error }
            return false
        }
    }

    /// Returns the confirmation, without a person, for a key that asks for the PIN each time; `nil` if only a person can
    /// confirm.
    private func quietConfirmation(of key: TokenReader.PrivateKey, on connection: TokenConnection) -> Confirmation? {
        guard key.needsPINEachTime else { return Confirmation(call: nil) }
        if connection.slot.has(UInt(CKF_PROTECTED_AUTHENTICATION_PATH)) || !isPINAtHand { return nil }
        return Confirmation(call: confirmation(on: connection))
    }

    private struct Confirmation { let call: ((Session) throws(CryptokiError) -> Void)? }

    /// Decrypts, and after the token was away looks for the key again.
    func decrypt(
        _ ciphertext: [UInt8], with key: TokenKey, by mechanism: DecryptionMechanism
    ) throws(ProviderError) -> SecretBytes {
        // As long as the modulus (RFC 8017, sections 7.1.2 and 7.2.2): the token need not be asked.
        guard ciphertext.count == (key.publicKey.bits + 7) / 8 else { throw notForKey(mechanism.scheme) }
        let result = try withConnection(loggedIn: true) {
            connection throws(CryptokiError) -> Result<SecretBytes, CryptokiError>? in
            guard let found = try connection.key(for: key.publicKey, id: key.id)?.found else { return nil }
            var isSecond = false
            while true {
                do throws(CryptokiError) {
                    return .success(
                        try connection.withSession { session throws(CryptokiError) in
                            try session.decrypt(
                                ciphertext, with: found.handle, by: mechanism,
                                authenticate: found.needsPINEachTime ? confirmation(on: connection) : nil)
                        })
                } catch {
                    if error.isOfCiphertext { return .failure(error) }
                    guard error.mayBeOfCiphertext else { throw error }
                    // Only a person could confirm another attempt.
                    guard quietConfirmation(of: found, on: connection) != nil else { return .failure(error) }
                    guard decryptsProbe(found, key.publicKey, by: mechanism, connection) else { throw error }
                    if isSecond { return .failure(error) }
                    // It may have been trouble that is over.
                    isSecond = true
                }
            }
        }
        guard let result else { throw keys.noLongerThere() }
        do throws(CryptokiError) { return try result.get() } catch { throw notForKey(mechanism.scheme) }
    }

    /// Returns whether a key decrypts a probe, so that the failure before was about the ciphertext.
    private func decryptsProbe(
        _ key: TokenReader.PrivateKey, _ publicKey: PublicKeyInfo, by mechanism: DecryptionMechanism,
        _ connection: TokenConnection
    ) -> Bool {
        guard let authenticate = quietConfirmation(of: key, on: connection) else { return false }
        do throws(CryptokiError) {
            return try connection.withSession { session throws(CryptokiError) in
                try session.decryptsProbe(
                    of: publicKey, with: key.handle, by: mechanism, authenticate: authenticate.call)
            }
        } catch { return false }
    }

    /// The same for all failures, without what the token says: nothing tells the padding from the rest.
    private func notForKey(_ scheme: DecryptionScheme) -> ProviderError {
        ProviderError(
            .malformedData,
            "The token '\(displayName)' cannot decrypt the data by \(scheme): it is damaged, or was encrypted for another "
                + "key; get it again.")
    }
}

import CP11Kit
import CertificateProviding
import Logging
import SwiftASN1

/// The key pairs on a token, and their certificates: makes, finds and destroys them. Everything here blocks.
struct TokenKeys: Sendable {
    let token: Token

    /// Lends a session for reading and writing on which the user is logged in. If the token was removed or reset, connects
    /// again and calls `body` once more, which therefore looks for the objects that its first call has left.
    func write<T>(
        _ body: (TokenConnection, Session) throws(CryptokiError) -> T
    ) throws(ProviderError) -> T {
        let result = try token.withConnection(loggedIn: true) {
            connection throws(CryptokiError) -> Result<T, CryptokiError> in
            do throws(CryptokiError) {
                try connection.slot.requireWritable()
                return .success(
                    try connection.withSession(writing: true) { session throws(CryptokiError) in
                        destroyOrphans(in: session)
                        return try body(connection, session)
                    })
            } catch {
                if error.endsConnection, !error.isUnspecific, error.code != CKR_DEVICE_ERROR { throw error }
                // The objects that a broken device has written are unknown: `body` is not called again.
                if error.endsConnection { token.forget(connection) }
                return .failure(token.specific(error))
            }
        }
        do throws(CryptokiError) { return try result.get() } catch {
            throw ProviderError(writing: error, token: token.displayName)
        }
    }

    /// Finds the private key of a public key that need not have a certificate.
    ///
    /// - Parameter id: A `CKA_ID` that it is expected under, for tokens without public key objects.
    func key(for publicKey: PublicKeyInfo, id: [UInt8]? = nil) throws(ProviderError) -> TokenKey? {
        try token.withConnection(loggedIn: true) { connection throws(CryptokiError) in
            let found = try connection.withSession { session throws(CryptokiError) in
                try connection.findHidden(in: session) { () throws(CryptokiError) -> [TokenKey] in
                    let reader = TokenReader(session: session, slot: connection.slot)
                    var ids: [[UInt8]] = id.map { [$0] } ?? []
                    for (handle, key) in try reader.publicKeys() where key == publicKey {
                        ids.append(try session.attribute(CKA_ID, of: handle) ?? [])
                    }
                    let privateKey = try reader.privateKeys().all(maximum: 1) { key throws(CryptokiError) in
                        guard key.modulus != nil || ids.contains(key.id) else { return false }
                        return try isPrivateHalf(key, of: publicKey, connection, session)
                    }.first
                    guard let privateKey else { return [] }
                    connection.hasProven(privateKey, for: publicKey)
                    return [try tokenKey(privateKey, publicKey, connection, session)]
                }
            }
            guard let found else { throw TokenConnection.searchWithoutLogin }
            return found.first
        }
    }

    /// Finds the key of an owner who has written it down. From then on it is not destroyed as an orphan.
    func ownedKey(for publicKey: PublicKeyInfo, id: [UInt8]?) throws(ProviderError) -> TokenKey? {
        let key = try key(for: publicKey, id: id)
        if let key { try token.pending.keep(key.id, on: token.identity) }
        return key
    }

    /// Finds the private keys under an id whose public keys are on the token as well.
    func all(id: [UInt8]) throws(ProviderError) -> [TokenKey] {
        let publicKeys = try token.withConnection(loggedIn: true) { connection throws(CryptokiError) in
            try connection.withSession { session throws(CryptokiError) in
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
        TokenKey(
            publicKey: publicKey,
            uri: PKCS11URI.text(of: connection.slot.token, class: CKO_PRIVATE_KEY, id: key.id, label: key.label),
            mechanisms: SigningMechanism.all(
                for: publicKey, mechanisms: connection.mechanisms, allowed: key.allowedMechanisms),
            id: key.id, token: token,
            decryptionSchemes: try token.decryptionSchemes(of: key, publicKey, connection, session),
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
        let probe = Token.probe()
        do throws(CryptokiError) {
            let signature = try session.sign(
                .message(probe), with: key.handle, by: mechanisms.filter { $0.scheme == scheme },
                modulusBits: publicKey.bits,
                authenticate: key.needsPINEachTime ? token.confirmation(on: connection) : nil)
            guard let encoded = try? signature.encoded(for: publicKey, token: token.displayName) else { return false }
            return publicKey.isValidSignature(encoded, for: probe, using: scheme)
        } catch {
            if error.isOfAnotherKind { return false }
            throw error
        }
    }

    /// Writes a chain beside its key, the leaf under the key's id and label. Certificates that are there already are
    /// not written again, and a root is not: the peer has its own.
    ///
    /// - Returns: Those that were written; `nil` when the key is not there. Leaves none of them where it fails.
    func store(
        _ chain: [X509Certificate], for key: TokenKey
    ) throws(ProviderError) -> [X509Certificate]? {
        // The certificates that this call has written, over all of its attempts: the answer to one may have been lost with the
        // token.
        var written: [X509Certificate] = []
        return try write { connection, session throws(CryptokiError) in
            guard let privateKey = try connection.key(for: key.publicKey, id: key.id, in: session)?.found else {
                return nil
            }
            let reader = TokenReader(session: session, slot: connection.slot)
            do throws(CryptokiError) {
                for (position, certificate) in CertificateChain.withoutRoot(chain).enumerated() {
                    let isLeaf = position == 0
                    guard try reader.objects(of: certificate, id: isLeaf ? key.id : nil).isEmpty else { continue }
                    let attributes =
                        isLeaf
                        ? certificate.attributes(id: key.id, label: privateKey.label)
                        : certificate.attributes(
                            id: Array(certificate.publicKey.sha256.prefix(20)), label: Array(certificate.subject.utf8))
                    if !written.contains(certificate) { written.append(certificate) }
                    _ = try session.create(attributes)
                }
                return written
            } catch {
                for certificate in written {
                    let id = certificate == chain.first ? key.id : nil
                    for object in (try? reader.objects(of: certificate, id: id)) ?? [] { try? session.destroy(object) }
                }
                throw error
            }
        }
    }

    /// Destroys certificates that ``store(_:for:)`` has written.
    ///
    /// - Parameter key: The one that the leaf was written for. A copy under another id was there before.
    func remove(_ certificates: [X509Certificate], for key: TokenKey) throws(ProviderError) {
        try write { connection, session throws(CryptokiError) in
            let reader = TokenReader(session: session, slot: connection.slot)
            for certificate in certificates {
                let id = certificate.publicKey == key.publicKey ? key.id : nil
                for object in try reader.objects(of: certificate, id: id) { try session.destroy(object) }
            }
        }
    }

    /// Destroys the objects on the token of processes that ended while they made a key pair. A failure now may be gone the next
    /// time.
    func destroyOrphans(in session: Session) {
        for orphan in token.pending.orphans(on: token.identity) {
            do {
                let wasWhole = try session.destroyOrphan(id: orphan.id)
                try orphan.hasBeenLookedFor(wasWhole: wasWhole, at: token.pending.now())
            } catch {
                token.pending.logger.warning(
                    "an orphaned key pair is left on the token",
                    metadata: ["id": "\(DisplayText.hexadecimal(orphan.id))", "reason": "\(error)"])
            }
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

extension X509Certificate {
    /// An X.509 certificate object (PKCS#11, section 4.6.3).
    fileprivate func attributes(id: [UInt8], label: [UInt8]) -> [Attribute] {
        var serial = DER.Serializer()
        serial.appendPrimitiveNode(identifier: .integer) { $0 += serialNumber }
        return [
            Attribute(CKA_CLASS, CKO_CERTIFICATE), Attribute(CKA_CERTIFICATE_TYPE, CK_ULONG(CKC_X_509)),
            Attribute(CKA_TOKEN, true), Attribute(CKA_PRIVATE, false), Attribute(CKA_ID, id),
            Attribute(CKA_LABEL, label), Attribute(CKA_SUBJECT, subjectDER), Attribute(CKA_ISSUER, issuerDER),
            Attribute(CKA_SERIAL_NUMBER, serial.serializedBytes), Attribute(CKA_VALUE, derRepresentation),
        ]
    }
}

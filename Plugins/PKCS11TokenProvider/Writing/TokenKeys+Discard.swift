import CP11Kit
import CertificateProviding

extension TokenKeys {
    /// Destroys a private key, its public key and the certificates for it. Other objects with the same id stay.
    ///
    /// - Throws: `notFound` when the token has no such key, `deleteFailed` naming the remaining objects.
    func discard(_ key: TokenKey) throws(ProviderError) {
        token.unloadKeys()
        var isFound = false
        let failures = try write { connection, session throws(CryptokiError) -> [String] in
            let reader = TokenReader(session: session, slot: connection.slot)
            let privateKeys = try connection.findHidden(in: session) { () throws(CryptokiError) in
                try reader.privateKeys(id: key.id).all { privateKey throws(CryptokiError) in
                    // A signature would load it again.
                    if token.module.losesLoadedKeys, privateKey.showsPublicKey {
                        return privateKey.mayBe(key.publicKey)
                    }
                    return try isPrivateHalf(privateKey, of: key.publicKey, connection, session)
                }
            }
            guard let privateKeys else { throw TokenConnection.searchWithoutLogin }
            // In a second call the private key may be gone, and the rest not yet.
            isFound = isFound || !privateKeys.isEmpty
            guard isFound else { return [] }
            // The private key first: if the rest fails, only public objects remain.
            var objects = privateKeys.map { (name: "the private key", handle: $0.handle) }
            for publicKey in try reader.publicKeys(id: key.id) where publicKey.key == key.publicKey {
                objects.append(("the public key", publicKey.handle))
            }
            for (handle, certificate) in try reader.certificates(for: key.publicKey, id: key.id) {
                objects.append(("the certificate '\(certificate.subject)'", handle))
            }
            var failures: [String] = []
            defer { connection.forgetKey(for: key.publicKey) }
            for (position, object) in objects.enumerated() {
                do throws(CryptokiError) { try session.destroy(object.handle) } catch {
                    // Some modules destroy both halves of a pair at once. A private key may be hidden instead, by a
                    // logout.
                    if error.code == CKR_OBJECT_HANDLE_INVALID, position >= privateKeys.count { continue }
                    if error.endsConnection, !error.isUnspecific { throw error }
                    failures.append("\(object.name) (\(error))")
                }
            }
            return failures
        }
        guard isFound else { throw noLongerThere() }
        guard failures.isEmpty else { throw stillThere(failures, key.id) }
    }

    /// Destroys every object with a `CKA_ID` that no other object has. The objects need not prove that they belong together: a
    /// key that cannot sign could not.
    ///
    /// - Throws: `deleteFailed` naming the remaining objects.
    func destroyAll(id: [UInt8]) throws(ProviderError) {
        token.unloadKeys()
        let failures = try write { connection, session throws(CryptokiError) -> [String] in
            // Without a login only the private key would not be there.
            let privateKeys = try connection.findHidden(in: session) { () throws(CryptokiError) in
                try session.objects(id: id, CKO_PRIVATE_KEY)
            }
            guard let privateKeys else { throw TokenConnection.searchWithoutLogin }
            let others = try session.objects(id: id).filter { !privateKeys.contains($0) }
            var failures: [String] = []
            for object in privateKeys + others {
                do throws(CryptokiError) { try session.destroy(object) } catch {
                    // Some modules destroy both halves of a pair at once.
                    if error.code == CKR_OBJECT_HANDLE_INVALID, others.contains(object) { continue }
                    if error.endsConnection, !error.isUnspecific { throw error }
                    failures.append("\(privateKeys.contains(object) ? "the private key" : "the public key") (\(error))")
                }
            }
            return failures
        }
        guard failures.isEmpty else { throw stillThere(failures, id) }
    }

    private func stillThere(_ failures: [String], _ id: [UInt8]) -> ProviderError {
        ProviderError(
            .deleteFailed,
            "The token '\(token.displayName)' still has \(failures.joined(separator: ", ")), id \(DisplayText.hexadecimal(id)); delete it with "
                + "the token's own tool.")
    }

    /// Destroys the public key and the certificates of a key pair whose private key is gone. Leaves them if there is any
    /// private key under their id: one that may not sign, and belongs to no identity, goes with them.
    ///
    /// - Parameter id: The `CKA_ID` that they had, where it is known; else that of the public key that is left.
    func removeRemains(of publicKey: PublicKeyInfo, id: [UInt8]?) throws(ProviderError) {
        try write { connection, session throws(CryptokiError) in
            let reader = TokenReader(session: session, slot: connection.slot)
            var ids = Set(id.map { [$0] } ?? [])
            let halves = try reader.publicKeys(id: id).filter { $0.key == publicKey }
            for (handle, _) in halves { ids.insert(try session.attribute(CKA_ID, of: handle) ?? []) }
            for id in ids where try connection.hasPrivateKey(id: id, in: session) { return }
            for (handle, _) in halves { try session.destroy(handle) }
            for id in ids {
                for (handle, _) in try reader.certificates(for: publicKey, id: id) { try session.destroy(handle) }
            }
            connection.forgetKey(for: publicKey)
        }
    }

    /// The keys that the public keys and the certificates under an id are of, where no private key is. An issuer's
    /// certificate may lie there too, and is left out.
    func publicKeysLeft(id: [UInt8]) throws(ProviderError) -> [PublicKeyInfo] {
        try token.withConnection { connection throws(CryptokiError) in
            try connection.withSession { session throws(CryptokiError) -> [PublicKeyInfo] in
                if try connection.hasPrivateKey(id: id, in: session) { return [] }
                let reader = TokenReader(session: session, slot: connection.slot)
                let certificates = try reader.certificates(with: [Attribute(CKA_ID, id)]).map(\.certificate)
                return try reader.publicKeys(id: id).map(\.key)
                    + certificates.filter { !$0.isAuthority }.map(\.publicKey)
            }
        }
    }

    /// Destroys every certificate for a key but one.
    func removeCertificates(for key: TokenKey, except kept: X509Certificate) throws(ProviderError) {
        try write { connection, session throws(CryptokiError) in
            let reader = TokenReader(session: session, slot: connection.slot)
            for (handle, certificate) in try reader.certificates(for: key.publicKey, id: key.id)
            where certificate != kept { try session.destroy(handle) }
        }
    }

    /// The certificates that ``discard(_:)`` would destroy.
    func certificates(for key: TokenKey) throws(ProviderError) -> [X509Certificate] {
        try token.withConnection { connection throws(CryptokiError) in
            try connection.withSession { session throws(CryptokiError) in
                try TokenReader(session: session, slot: connection.slot).certificates(for: key.publicKey, id: key.id)
                    .map(\.certificate)
            }
        }
    }

    func noLongerThere() -> ProviderError {
        ProviderError(
            .notFound, "The token '\(token.displayName)' does not have the private key; it may have been deleted.")
    }
}

extension TokenConnection {
    /// Whether there is a private key under an id, of whatever use.
    fileprivate func hasPrivateKey(id: [UInt8], in session: Session) throws(CryptokiError) -> Bool {
        let found = try findHidden(in: session) { () throws(CryptokiError) in
            try session.objects(id: id, CKO_PRIVATE_KEY)
        }
        guard let found else { throw Self.searchWithoutLogin }
        return !found.isEmpty
    }
}

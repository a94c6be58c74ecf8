package import CertificateProviding

extension PKCS11TokenProvider: DeletionAnnouncing {
    /// The provider itself.
    package var deletions: (any DeletionAnnouncing)? { self }

    /// Returns the objects that a deletion will destroy; empty unless `delete-objects` is set. Logs in if the PIN is
    /// configured; does not prompt.
    package func announcedDeletions() async throws(ProviderError) -> [String] {
        do throws(ProviderError) {
            let tokens = try self.tokens()
            guard tokens.settings.deletesObjects else { return [] }
            return try await tokens.calls.run("looking for the identity") { () throws(ProviderError) in
                guard let key = try tokens.keyToDestroy() else {
                    return try tokens.remains().map { $0.token.keys.announcement(ofRemains: $0.publicKey, id: $0.id) }
                }
                return try key.token.keys.announcement(of: key)
            }
        } catch {
            throw error.attributed(to: id)
        }
    }
}

extension TokenLocator {
    /// The key of the identity that was chosen; where none was, of the one that the URI means. `nil` when it is gone.
    ///
    /// Logs in to the token of that identity only: the PIN of a configuration is not for the others.
    ///
    /// - Throws: Also `configurationInvalid` where none was chosen and the URI means several, and `tokenNotPresent`
    ///   while the token with the chosen one is away.
    func keyToDestroy() throws(ProviderError) -> TokenKey? {
        var failures: [ProviderError] = []
        let present = try present(&failures)
        try requireLogin(to: present)
        guard let chosen = try remembered() else {
            if let login = try tokenToOpen(of: present) { try openUnattended(login) }
            do throws(ProviderError) { return try identityKey(pin: nil).1 } catch {
                guard error.code == .notFound else { throw error }
                return try uncertifiedKey(on: present.map(\.0))
            }
        }
        var holders = present.filter { chosen.uri?.matches($0.1) ?? false }
        if holders.isEmpty {
            // Its certificate is public, mostly.
            holders = present.filter { token, slot in
                read(token, slot, &failures).contains { $0.candidate.certificate == chosen.leaf }
            }
        }
        // Failures of other tokens do not matter.
        guard let (token, _) = holders.first else {
            throw present.isEmpty ? noToken(failures) : tokenNotPresent()
        }
        if let login = try tokenToOpen(of: holders) { try openUnattended(login) }
        return try token.keys.key(for: chosen.leaf.publicKey, id: chosen.uri?.objectID ?? settings.uri.objectID)
    }

    /// The objects that remain of a key pair whose private key is gone.
    struct Remains {
        let token: Token
        let publicKey: PublicKeyInfo
        let id: [UInt8]

        func destroy() throws(ProviderError) { try token.keys.removeRemains(of: publicKey, id: id) }
    }

    /// Returns the objects that an interrupted deletion has left: of the chosen identity, or without one under the id that the
    /// URI names. Call it after ``keyToDestroy()``, which has logged in.
    func remains() throws(ProviderError) -> [Remains] {
        let chosen = try remembered()
        guard let id = chosen.map({ $0.uri?.objectID }) ?? settings.uri.objectID else { return [] }
        var failures: [ProviderError] = []
        var remains: [Remains] = []
        for (token, slot) in try present(&failures) where token.isLoggedIn {
            if let chosen, chosen.uri?.matches(slot) != true { continue }
            for key in try token.keys.publicKeysLeft(id: id)
            where !remains.contains(where: { $0.publicKey == key && $0.token === token }) {
                if let chosen, key != chosen.leaf.publicKey { continue }
                if try token.keys.key(for: key, id: id) == nil {
                    remains.append(Remains(token: token, publicKey: key, id: id))
                }
            }
        }
        return remains
    }

    /// The key under the id that the URI names, where there is no certificate for it: it was made for a request that
    /// has had no answer. `nil` where the URI names none, or there is none.
    private func uncertifiedKey(on tokens: [Token]) throws(ProviderError) -> TokenKey? {
        guard let id = settings.uri.objectID else { return nil }
        var keys: [TokenKey] = []
        for token in tokens where token.isLoggedIn { keys += try token.keys.all(id: id) }
        guard keys.count <= 1 else {
            throw ProviderError(
                .configurationInvalid,
                "\(keys.count) keys have the id \(DisplayText.hexadecimal(id)), so none is destroyed; destroy the right one with the "
                    + "token's own tool.")
        }
        return keys.first
    }
}

public import CertificateProviding
import CP11Kit

/// Keys are made on the one token that the URI leads to; what the URI says of objects does not matter for that.
extension PKCS11TokenProvider: KeyGenerating {
    /// Makes a key pair under a fresh random `CKA_ID`, sensitive and not extractable. When the deadline is over before
    /// the token has made it, it is destroyed as soon as it is there.
    public func generateKey(
        _ type: KeyType, label: String, for use: KeyUse, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) throws(CertificateProviderError) -> Void
    ) async throws(CertificateProviderError) -> any IdentityKey {
        try await attributed { () async throws(CertificateProviderError) in
            let token = try await openToken(interaction)
            // A card takes a minute for a large RSA key.
            let made = try await token.calls.run(
                "making a key pair", atLeast: .seconds(120), undo: { try? $0.takeBack() }
            ) {
                () throws(CertificateProviderError) in
                try token.generate(type, label: label, for: use)
            }
            do throws(CertificateProviderError) {
                try await environment.executor.run { () throws(CertificateProviderError) in
                    try remember(made.key)
                    try made.handOver()
                }
            } catch {
                // It would be destroyed later, when somebody relies on it.
                let reason = error
                do throws(CertificateProviderError) {
                    try await token.calls.run("destroying the key") { () throws(CertificateProviderError) in
                        try made.takeBack()
                    }
                } catch { throw made.left(by: error, after: reason) }
                throw reason
            }
            return made.key
        }
    }

    /// Finds a key by its public key object, for RSA also by its modulus. The key signs a probe.
    public func key(
        for publicKey: PublicKeyInfo, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> (any IdentityKey)? {
        try await attributed { () async throws(CertificateProviderError) in
            let token = try await openToken(interaction)
            let id = try tokens().settings.uri.objectID
            return try await token.calls.run("looking for the key") { () throws(CertificateProviderError) in
                let key = try token.key(for: publicKey, id: id)
                if let key { try token.pending.keep(key.id, on: token.identity) }
                return key
            }
        }
    }

    public func keyAtHand(for publicKey: PublicKeyInfo) throws(CertificateProviderError) -> (any IdentityKey)? {
        do throws(CertificateProviderError) {
            let tokens = try self.tokens()
            return try tokens.calls.wait("looking for the key") { () throws(CertificateProviderError) in
                try tokens.keyAtHand(for: publicKey)
            }
        } catch {
            throw error.attributed(to: id)
        }
    }

    /// Writes the leaf under the key's `CKA_ID` and label, and the intermediates that are not on the token.
    public func store(
        certificateChain: [X509Certificate], for key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> Identity {
        try await attributed { () async throws(CertificateProviderError) in
            let key = try await tokenKey(key, interaction)
            let identity = try Identity(
                certificateChain: certificateChain, key: key,
                provenance: .init(provider: id, alias: key.label, source: key.uri))
            let token = key.token
            let written = try await token.calls.run(
                "writing the certificate", undo: { try? token.remove($0, for: key) },
                { () throws(CertificateProviderError) in
                    guard let written = try token.store(certificateChain, for: key) else { throw token.noLongerThere() }
                    return written
                })
            do throws(CertificateProviderError) { try await identity.verifyPossession() } catch {
                // Why it is removed says more than why that fails too.
                let removal: Void? = try? await token.calls.run("removing the certificate") {
                    () throws(CertificateProviderError) in try token.remove(written, for: key)
                }
                var error = error
                if removal == nil { error.message += " The new certificate is still on the token." }
                throw error
            }
            return identity
        }
    }

    public func removeReplacedCertificates(
        of identity: Identity, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        try await attributed { () async throws(CertificateProviderError) in
            let key = try await tokenKey(identity.key, interaction)
            try await key.token.calls.run("removing certificates") { () throws(CertificateProviderError) in
                try key.token.removeCertificates(for: key, except: identity.certificate)
            }
        }
    }

    /// Destroys the private key, the public key and the certificates for it, and nothing else with their id or label.
    public func discard(
        _ key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        try await attributed { () async throws(CertificateProviderError) in
            let key = try await tokenKey(key, interaction)
            try await key.token.calls.run("destroying the key") { () throws(CertificateProviderError) in
                try key.token.discard(key)
            }
        }
    }

    public func removeRemains(
        of publicKey: PublicKeyInfo, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        try await attributed { () async throws(CertificateProviderError) in
            let token = try await openToken(interaction)
            let id = try tokens().settings.uri.objectID
            try await token.calls.run("destroying the leftover objects of a key") { () throws(CertificateProviderError) in
                try token.removeRemains(of: publicKey, id: id)
            }
        }
    }

    private func attributed<T>(
        _ body: () async throws(CertificateProviderError) -> T
    ) async throws(CertificateProviderError) -> T {
        do throws(CertificateProviderError) { return try await body() } catch { throw error.attributed(to: id) }
    }

    /// The key as this room knows it; one that somebody has wrapped is looked for by its public key.
    private func tokenKey(
        _ key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> TokenKey {
        if let key = key as? TokenKey { return key }
        if let found = try await self.key(for: key.publicKey, interaction) as? TokenKey { return found }
        throw CertificateProviderError(
            .notFound, "No token that 'uri' matches has the private key (\(key.publicKey.displayName)).")
    }

    /// The one token that the URI means, with its user logged in.
    private func openToken(
        _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> Token {
        let tokens = try self.tokens()
        let (token, login) = try await tokens.calls.run("looking for the token") {
            () throws(CertificateProviderError) in try tokens.single()
        }
        guard let login else { return token }
        let pin = try await login.ask(interaction)
        try await tokens.calls.run("logging in") { () throws(CertificateProviderError) in try tokens.logIn(login, pin) }
        return token
    }
}

extension TokenLocator {
    /// - Throws: `tokenNotPresent`, and `configurationInvalid` where more than one token matches, or no login is
    ///   wanted.
    fileprivate func single() throws(CertificateProviderError) -> (Token, Login?) {
        var failures: [CertificateProviderError] = []
        let present = try present(&failures)
        guard let (token, _) = present.first else {
            throw noToken(failures)
        }
        guard present.count == 1 else {
            let candidates = present.map { "'\(TokenURI.text(of: $0.1.token, class: nil, id: [], label: []) ?? "")'" }
            throw CertificateProviderError(
                .configurationInvalid,
                "\(present.count) tokens match '\(settings.uri.text.withVisibleControls)'; set 'uri' to one of: \(candidates.joined(separator: ", "))."
            )
        }
        try requireLogin(to: present)
        return (token, try tokenToOpen(of: present))
    }

    fileprivate func keyAtHand(for publicKey: PublicKeyInfo) throws(CertificateProviderError) -> TokenKey? {
        var failures: [CertificateProviderError] = []
        let present = try present(&failures)
        guard !present.isEmpty else { throw noToken(failures) }
        try requireLogin(to: present)
        if let login = try tokenToOpen(of: present) {
            guard login.isUnattended else { return nil }
            try logIn(login, nil)
        }
        for (token, _) in present where token.isLoggedIn {
            if let key = try token.key(for: publicKey, id: settings.uri.objectID) { return key }
        }
        throw CertificateProviderError(
            .notFound, "No token that 'uri' matches has the private key (\(publicKey.displayName)).")
    }

    /// What a login would show may be what is looked for.
    func requireLogin(to present: [(Token, Slot)]) throws(CertificateProviderError) {
        guard settings.login != .never || !present.contains(where: { $0.1.has(UInt(CKF_LOGIN_REQUIRED)) }) else {
            throw CertificateProviderError(
                .configurationInvalid,
                "Keys cannot be made, found or destroyed without a login, but 'login' is 'never'; set it to 'auto'.")
        }
    }
}

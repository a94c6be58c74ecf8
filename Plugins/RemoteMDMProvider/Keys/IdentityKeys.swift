import CertificateProviding

/// The private keys of identities, wherever they live.
struct IdentityKeys: Sendable {
    let tokens: TokenHome
    let executor: BlockingExecutor

    /// Makes a key. In a token it is not there for anybody before `remember` has written it down.
    func make(
        _ type: KeyType, for names: CertificateRequest.Names, use: KeyUse, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (KeptKey) throws(CertificateProviderError) -> Void
    ) async throws(CertificateProviderError) -> any IdentityKey {
        guard let home = try tokens.provider() else {
            return try await executor.run { () throws(CertificateProviderError) in
                let key = try SoftwareKey.generate(type, location: .store)
                try remember(.sealed(try key.pkcs8Representation()))
                return key
            }
        }
        let label = names.commonName ?? names.subjectText
        let key = try await home.generateKey(type, label: label, for: use, interaction) {
            [tokens] key throws(CertificateProviderError) in
            try remember(try .token(uri: tokens.uri(of: tokens.opened(key)), publicKey: key.publicKey))
        }
        if use.contains(.decryption), key.decrypter == nil {
            try await home.discard(key, interaction)
            throw CertificateProviderError(
                .unsupportedAlgorithm,
                "SCEP needs a key that can decrypt, and the token makes none; leave 'key' out, or use EST.")
        }
        return key
    }

    /// Finds a key; `nil` where it is gone.
    func find(
        _ kept: KeptKey, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> (any IdentityKey)? {
        switch kept {
        case .sealed(let privateKey): try SoftwareKey(pkcs8: privateKey, location: .store)
        case .token(let uri, let publicKey):
            try await tokens.provider(ofKey: uri).key(for: publicKey, interaction).map { tokens.opened($0) }
        }
    }

    /// As ``find(_:_:)``, where nobody is asked. Blocks for the token.
    ///
    /// - Throws: `interactionRequired` where somebody would have to be.
    func keyAtHand(_ kept: KeptKey) throws(CertificateProviderError) -> any IdentityKey {
        switch kept {
        case .sealed(let privateKey): return try SoftwareKey(pkcs8: privateKey, location: .store)
        case .token(let uri, let publicKey):
            if let key = try tokens.provider(ofKey: uri).keyAtHand(for: publicKey) { return key }
            if let key = tokens.openedKey(for: publicKey) { return key }
            guard tokens.isConfigured(forKey: uri) else {
                throw CertificateProviderError(
                    .interactionRequired,
                    "The key is in a token (\(uri.withVisibleControls)) that 'key' does not name any more, and whose PIN is not "
                        + "known; name it again, or have a new identity made where 'key' is now: certprov fetch --force."
                )
            }
            throw CertificateProviderError(
                .interactionRequired,
                "The key is in a token whose PIN is not configured (\(uri.withVisibleControls)); set 'key-pin-source', or a "
                    + "'pin-source' in the URI of 'key'.")
        }
    }

    /// Puts an issued chain where the key is, and lets the key sign a probe.
    func storeChain(
        _ kept: KeptKey, _ key: any IdentityKey, with chain: [X509Certificate], source: String,
        _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) -> Identity {
        if case .token(let uri, _) = kept {
            _ = try await tokens.provider(ofKey: uri).store(certificateChain: chain, for: key, interaction)
        }
        let identity = try Identity(
            certificateChain: chain, key: key,
            provenance: .init(provider: RemoteMDMProvider.id, source: source))
        if case .sealed = kept { try await identity.verifyPossession() }
        return identity
    }

    /// Destroys a key in a token, and the certificates for it. What rests in the store goes with its entry or record.
    func discard(_ kept: KeptKey, _ interaction: any UserInteraction) async throws(CertificateProviderError) {
        guard case .token(let uri, let publicKey) = kept else { return }
        let home = try tokens.provider(ofKey: uri)
        if let key = try await home.key(for: publicKey, interaction) {
            try await home.discard(key, interaction)
        } else {
            // Somebody else has destroyed it, or a process that did was killed before it came to the end.
            try await home.removeRemains(of: publicKey, interaction)
        }
    }

    /// Destroys every other certificate for an identity's key: one that nobody knows of was issued to a process that
    /// has ended before it could say so.
    func removeOthers(
        than identity: Identity, _ kept: KeptKey, _ interaction: any UserInteraction
    ) async throws(CertificateProviderError) {
        guard case .token(let uri, _) = kept else { return }
        try await tokens.provider(ofKey: uri).removeReplacedCertificates(of: identity, interaction)
    }
}

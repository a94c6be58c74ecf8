import CP11Kit
public import CertificateProviding
import Logging

/// The key store `pkcs11:`: the one token that a URI (RFC 7512) names.
///
/// Keys are made in the token, sensitive and not extractable, and never leave it. Object attributes of the URI name a
/// key for ``identity(_:_:)``; for the other calls they do not matter.
package final class TokenKeyStore: KeyStore {
    /// The scheme of its URIs: `pkcs11` (RFC 7512).
    package static let scheme = "pkcs11"

    private let provider: PKCS11TokenProvider
    private var id: ProviderID { PKCS11TokenProvider.id }

    init(_ provider: PKCS11TokenProvider) { self.provider = provider }

    /// The entry of the key store for a ``/CertificateProviding/ProviderRegistry``. Its parameters are `module-path`
    /// and `timeout`.
    package static var descriptor: KeyStoreDescriptor {
        KeyStoreDescriptor(
            scheme: scheme, id: PKCS11TokenProvider.id, displayName: "PKCS#11 token",
            summary: "Private keys in a PKCS#11 token.",
            parameters: [TokenSettings.Parameter.modulePath.descriptor, TokenSettings.Parameter.timeout.descriptor]
        ) { environment, location, parameters throws(ProviderError) in
            TokenKeyStore(PKCS11TokenProvider(environment, try TokenSettings(location, parameters)))
        }
    }

    package var properties: KeyStoreProperties {
        let makes = KeyType.allCases.map { type -> (KeyType, KeyUse) in
            (type, type.isRSA ? [.signing, .pkcs1Decryption, .oaepDecryption] : .signing)
        }
        return KeyStoreProperties(
            scheme: Self.scheme, location: .token, makes: Dictionary(uniqueKeysWithValues: makes),
            guarantees: [.neverExportable], query: provider.settings.uri.query)
    }

    package func holds(keyURI: String) -> Bool {
        (try? PKCS11URI(keyURI)).map(provider.settings.uri.meansToken) ?? false
    }

    /// Finds the one token, and logs in to it.
    package func check(_ interaction: any UserInteraction) async throws(ProviderError) {
        try await attributed { () async throws(ProviderError) in
            guard !interaction.canAsk else { return _ = try await loggedInToken(interaction) }
            let tokens = try provider.tokens()
            try await tokens.calls.run("logging in") { () throws(ProviderError) in
                _ = try tokens.unattended(nil)
            }
        }
    }

    /// Makes a key pair under a fresh random `CKA_ID`. A key that is ready only after the deadline is destroyed then.
    package func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey {
        try await attributed { () async throws(ProviderError) in
            let type = try properties.type(of: new)
            let token = try await loggedInToken(interaction)
            // A card takes a minute for a large RSA key.
            let made = try await token.calls.run(
                "making a key pair", atLeast: .seconds(120), undo: { try? $0.takeBack() }
            ) {
                () throws(ProviderError) in
                try token.keys.generate(type, label: new.label, for: new.use)
            }
            do throws(ProviderError) {
                for wanted in [KeyUse.pkcs1Decryption, .oaepDecryption] where new.use.contains(wanted) {
                    let schemes = wanted.decryptionSchemes
                    guard Set(schemes).isDisjoint(with: made.key.decryptionSchemes) else { continue }
                    throw ProviderError(
                        .unsupportedAlgorithm,
                        "The token '\(token.displayName)' makes no key that decrypts by "
                            + "\(schemes.map(\.description).joined(separator: " or ")); use another key store.")
                }
                try await remember(made.key)
                try await provider.environment.executor.run { () throws(ProviderError) in
                    try made.handOver()
                }
            } catch {
                // Otherwise it would be destroyed later, when it may be in use.
                let reason = error
                do throws(ProviderError) {
                    try await token.calls.run("destroying the key") { () throws(ProviderError) in
                        try made.takeBack()
                    }
                } catch { throw made.left(by: error, after: reason) }
                throw reason
            }
            return made.key
        }
    }

    /// Finds a key by its public key object, for RSA also by its modulus. The key signs a probe.
    package func key(
        for reference: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)? {
        try await attributed { () async throws(ProviderError) in
            try await tokenKey(for: reference, interaction)
        }
    }

    package func storedKey(for reference: KeyReference) throws(ProviderError) -> (any IdentityKey)? {
        try waiting("looking for the key") { token, id throws(ProviderError) in
            try token.keys.ownedKey(for: reference.publicKey, id: id)
        } at: {
            reference
        }
    }

    /// Returns the private keys on the token whose public key is there as well, in a public key object or a certificate.
    /// Logs in if the PIN is at hand; otherwise only public objects are seen. A key that cannot be read is left out, with a
    /// warning in the log.
    ///
    /// - Throws: `tokenNotPresent`, `configurationInvalid` if several tokens match, errors of the login and the module.
    package func list() async throws(ProviderError) -> [KeyDescription] {
        try await attributed { () async throws(ProviderError) in
            let tokens = try provider.tokens()
            return try await tokens.calls.run("listing the keys") { () throws(ProviderError) in
                let (token, login) = try tokens.single(nil)
                if let login, login.isUnattended { try tokens.logIn(login, nil) }
                return try token.keys.descriptions(tokens.settings.uri.query)
            }
        }
    }

    /// Destroys the private key, the public key and the certificates for it, and nothing else with their id or label.
    package func destroy(
        _ reference: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool {
        try await attributed { () async throws(ProviderError) in
            let token = try await loggedInToken(interaction, reference)
            let id = objectID(of: reference)
            return try await token.calls.run("destroying the key") { () throws(ProviderError) in
                try token.keys.destroy(reference.publicKey, id: id)
            }
        }
    }

    package func destroyStored(_ reference: KeyReference) throws(ProviderError) -> Bool {
        try waiting("destroying the key") { token, id throws(ProviderError) in
            try token.keys.destroy(reference.publicKey, id: id)
        } at: {
            reference
        }
    }

    /// Returns a sentence for each object of the key on the token; none if there is nothing of it. Reads the token,
    /// without a prompt.
    ///
    /// - Throws: `tokenNotPresent`; `interactionRequired` for a PIN without a source; `configurationInvalid` if several
    ///   tokens match; errors of the module.
    package func announceDestruction(
        of reference: KeyReference
    ) async throws(ProviderError) -> [String] {
        try await attributed { () async throws(ProviderError) in
            let tokens = try provider.tokens()
            let (uri, id) = (try? PKCS11URI(reference.uri), objectID(of: reference))
            return try await tokens.calls.run("looking for the key") { () throws(ProviderError) in
                let token = try tokens.unattended(uri)
                guard let key = try token.keys.key(for: reference.publicKey, id: id) else {
                    guard let id, try token.keys.publicKeysLeft(id: id).contains(reference.publicKey)
                    else {
                        return []
                    }
                    return [token.keys.announcement(ofRemains: reference.publicKey, id: id)]
                }
                return try token.keys.announcement(of: key)
            }
        }
    }

    package var certificates: (any CertificateStoring)? { self }

    package func shutdown() async { await provider.shutdown() }

    // MARK: -

    private func objectID(of reference: KeyReference) -> [UInt8]? {
        (try? PKCS11URI(reference.uri))?.objectID ?? provider.settings.uri.objectID
    }

    private func attributed<T>(
        _ body: () async throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        do throws(ProviderError) { return try await body() } catch { throw error.attributed(to: id) }
    }

    /// Calls `body` with the token of a key, logged in without a prompt. Blocks.
    private func waiting<T: Sendable>(
        _ purpose: String, _ body: @escaping @Sendable (Token, [UInt8]?) throws(ProviderError) -> T,
        at reference: () -> KeyReference
    ) throws(ProviderError) -> T {
        do throws(ProviderError) {
            let tokens = try provider.tokens()
            let (uri, id) = (try? PKCS11URI(reference().uri), objectID(of: reference()))
            return try tokens.calls.wait(purpose) { () throws(ProviderError) in
                try body(try tokens.unattended(uri), id)
            }
        } catch {
            throw error.attributed(to: self.id)
        }
    }

    private func tokenKey(
        for reference: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> TokenKey? {
        let token = try await loggedInToken(interaction, reference)
        let id = objectID(of: reference)
        return try await token.calls.run("looking for the key") { () throws(ProviderError) in
            try token.keys.ownedKey(for: reference.publicKey, id: id)
        }
    }

    /// The key as this room knows it; one that is wrapped is looked for by its public key.
    private func tokenKey(
        of key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> TokenKey {
        if let key = key as? TokenKey { return key }
        let reference = KeyReference(publicKey: key.publicKey, uri: key.uri ?? "")
        if let found = try await tokenKey(for: reference, interaction) { return found }
        throw ProviderError(
            .notFound,
            "No token that \(provider.settings.names.uri) matches has the private key (\(key.publicKey.displayName)); insert the "
                + "token that has it, or fetch a new identity.")
    }

    /// The one token that the URI names, with its user logged in.
    ///
    /// - Parameter reference: A key whose token it must be.
    private func loggedInToken(
        _ interaction: any UserInteraction, _ reference: KeyReference? = nil
    ) async throws(ProviderError) -> Token {
        let tokens = try provider.tokens()
        let uri = reference.flatMap { try? PKCS11URI($0.uri) }
        let (token, login) = try await tokens.calls.run("looking for the token") {
            () throws(ProviderError) in try tokens.single(uri)
        }
        guard let login else { return token }
        let pin = try await login.ask(interaction)
        try await tokens.calls.run("logging in", atLeast: login.minimumTime) { () throws(ProviderError) in
            try tokens.logIn(login, pin)
        }
        return token
    }
}

extension TokenKeyStore: CertificateStoring {
    package func identity(
        _ uri: String, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        try await attributed { () async throws(ProviderError) in
            try await provider.identity(on: provider.tokens().narrowed(to: PKCS11URI(uri)), interaction)
        }
    }

    /// Lets the key sign a probe, and writes the leaf under its `CKA_ID` and label, and the intermediates that are not on
    /// the token.
    package func storeChain(
        _ chain: [X509Certificate], for key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        try await attributed { () async throws(ProviderError) in
            let key = try await tokenKey(of: key, interaction)
            let identity = try Identity(
                certificateChain: chain, key: key, provenance: .init(provider: id, alias: key.label, source: key.uri))
            try await identity.verifyPossession()
            let token = key.token
            _ = try await token.calls.run(
                "writing the certificate", undo: { try? token.keys.remove($0, for: key) },
                { () throws(ProviderError) in
                    guard let written = try token.keys.store(chain, for: key) else { throw token.keys.noLongerThere() }
                    return written
                })
        }
    }

    package func removeOtherCertificates(
        than leaf: X509Certificate, of reference: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        try await attributed { () async throws(ProviderError) in
            guard let key = try await tokenKey(for: reference, interaction) else { return }
            try await key.token.calls.run("removing certificates") { () throws(ProviderError) in
                try key.token.keys.removeCertificates(for: key, except: leaf)
            }
        }
    }
}

extension TokenLocator {
    /// - Parameter keyURI: Of a key whose token it must be.
    /// - Throws: `tokenNotPresent`, and `configurationInvalid` where more than one token matches, or no login is
    ///   wanted.
    fileprivate func single(_ keyURI: PKCS11URI?) throws(ProviderError) -> (Token, TokenLogin?) {
        var failures: [ProviderError] = []
        var present = try present(&failures)
        if let keyURI { present = present.filter { keyURI.matches($0.1) } }
        guard let (token, _) = present.first else {
            throw noToken(failures)
        }
        guard present.count == 1 else {
            let candidates = present.map { "'\(PKCS11URI.text(of: $0.1.token))'" }
            throw ProviderError(
                .configurationInvalid,
                "\(present.count) tokens match '\(DisplayText.visible(settings.uri.text))'; set \(settings.names.uri) to one of: "
                    + "\(candidates.joined(separator: ", ")).")
        }
        try requireLogin(to: present)
        let login = try tokenToOpen(of: present)
        // The key's own URI names the token as well as the configured one does.
        return (
            token,
            login.map { TokenLogin(token: $0.token, slot: $0.slot, isMeant: $0.isMeant || keyURI?.namesToken == true) }
        )
    }

    /// The one token that the URI names, logged in without a prompt.
    fileprivate func unattended(_ keyURI: PKCS11URI?) throws(ProviderError) -> Token {
        let (token, login) = try single(keyURI)
        guard let login else { return token }
        guard login.isUnattended else {
            throw ProviderError(
                .interactionRequired,
                "The PIN of the token '\(token.displayName)' is needed; set \(settings.names.pinSource).")
        }
        try logIn(login, nil)
        return token
    }

    /// Objects that only a login shows may be the ones in question.
    func requireLogin(to present: [(Token, Slot)]) throws(ProviderError) {
        guard settings.login != .never || !present.contains(where: { $0.1.has(UInt(CKF_LOGIN_REQUIRED)) }) else {
            throw ProviderError(
                .configurationInvalid,
                "Keys cannot be made, found or destroyed without a login, but 'login' is 'never'; set it to 'auto'.")
        }
    }
}

extension TokenKeys {
    /// Destroys a key pair and the certificates for it, or what an interrupted destruction has left of them.
    ///
    /// - Returns: Whether the private key was there.
    fileprivate func destroy(_ publicKey: PublicKeyInfo, id: [UInt8]?) throws(ProviderError) -> Bool {
        if let key = try key(for: publicKey, id: id) {
            do throws(ProviderError) {
                try discard(key)
                return true
            } catch {
                // A key that was written down, and not handed over, is an orphan to the first call that writes.
                guard error.code == .notFound else { throw error }
            }
        }
        try removeRemains(of: publicKey, id: id)
        return false
    }

    /// - Parameter query: What is appended to the keys' URIs.
    fileprivate func descriptions(_ query: String) throws(ProviderError) -> [KeyDescription] {
        try token.withConnection { connection throws(CryptokiError) in
            try connection.withSession { session throws(CryptokiError) in
                let reader = TokenReader(session: session, slot: connection.slot)
                let keys = try reader.privateKeys()
                for error in keys.errors {
                    token.pending.logger.warning(
                        "a private key cannot be read",
                        metadata: ["token": "\(token.displayName)", "reason": "\(error)"])
                }
                let publicKeys = keys.found.isEmpty ? [:] : try reader.publicKeysByID()
                return keys.found.compactMap { key in
                    guard let publicKey = publicKeys[key.id]?.first(where: key.mayBe) else { return nil }
                    let uri = PKCS11URI.text(
                        of: connection.slot.token, class: CKO_PRIVATE_KEY, id: key.id, label: key.label)
                    return KeyDescription(
                        KeyReference(publicKey: publicKey, uri: uri + query),
                        label: String(validating: key.label, as: UTF8.self), location: .token)
                }
            }
        }
    }

    func announcement(ofRemains publicKey: PublicKeyInfo, id: [UInt8]) -> String {
        "the leftover objects of a key pair (\(publicKey.displayName), id \(DisplayText.hexadecimal(id))) on the token '\(token.displayName)'"
    }

    func announcement(of key: TokenKey) throws(ProviderError) -> [String] {
        let name = "(\(key.publicKey.displayName), id \(DisplayText.hexadecimal(key.id)))"
        return ["the private and the public key \(name) on the token '\(token.displayName)'"]
            + (try certificates(for: key).map { "its certificate '\($0.subject)'" })
    }
}

extension KeyStoreDescriptor {
    /// The key store `pkcs11:`: private keys on a PKCS#11 token.
    public static var pkcs11: KeyStoreDescriptor { TokenKeyStore.descriptor }
}

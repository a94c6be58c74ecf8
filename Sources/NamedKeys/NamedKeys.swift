public import CertificateProviding
import Logging
import OpenSSLSupport
public import Signing
import Synchronization

/// The named key pairs of a host, or of a registered application: key pairs with a name and without a certificate, in any key
/// store.
///
///     let pair = try await keys.create(name, NoUserInteraction())
///     let signature = try await keys.sign(SigningContent(Array("text".utf8)), with: name, NoUserInteraction())
///
/// One sealed record names every pair from before its private key may exist until after that is destroyed. A process that is
/// killed at any moment leaves no name that cannot be used, and no key that the record does not name: the next change of any
/// pair destroys such a key. Of several processes that create one name, one gets it.
///
/// A pair never has the key of an identity: no provider finds the record, and a key that is in use for something else is not imported.
/// With a registered application, the record is in its vault, which must be unlocked.
public final class NamedKeys: Sendable {
    /// The part of the identity store that has the record. No provider has a name that ends so.
    public static let storageID = ProviderID("named_")
    /// The URI of the key store that makes a pair where none is named: this host's identity store.
    public static let defaultStore = "store:"

    private let environment: ProviderEnvironment
    private let pinSource: SecretSource?
    private let record: PairRecord
    /// The stores that were made: each has connections and logins of its own.
    private let stores = Mutex<[(uri: String, store: any KeyStore)]>([])

    /// Creates the collection. Reads nothing yet.
    ///
    /// - Parameters:
    ///   - environment: Its storage is the part ``storageID`` of an identity store or a vault, and its key stores are those that
    ///     the pairs are in.
    ///   - pinSource: The source of the PIN of the key store that an operation is about; `nil` for that of its URI, or a prompt.
    public init(_ environment: ProviderEnvironment, pinSource: SecretSource? = nil) {
        (self.environment, self.pinSource) = (environment, pinSource)
        record = PairRecord(storage: environment.storage)
    }

    // MARK: - Looking

    /// Returns all pairs, by name.
    ///
    /// - Throws: `storeReadFailed` for a record that is damaged or that a newer version has written, `vaultLocked`, and other errors
    ///   of the storage.
    public func list() async throws(ProviderError) -> [NamedKey] {
        try await reading().compactMap(\.pair).sorted { $0.name.description < $1.name.description }
    }

    /// Whether there is a pair of that name.
    ///
    /// - Throws: As ``list()``.
    public func exists(_ name: KeyName) async throws(ProviderError) -> Bool {
        try await reading().contains { $0.pair?.name == name }
    }

    /// Returns the pair of that name, with its public key.
    ///
    /// - Throws: `notFound`, and as ``list()``.
    public func pair(named name: KeyName) async throws(ProviderError) -> NamedKey {
        if let pair = try await reading().lazy.compactMap(\.pair).first(where: { $0.name == name }) { return pair }
        throw ProviderError(
            .notFound, "There is no key pair named '\(name.shown)'; see: certprov keys list")
    }

    /// Returns the pair of a public key; `nil` if the key is not that of a pair.
    ///
    /// - Throws: As ``list()``.
    public func pair(of key: PublicKeyInfo) async throws(ProviderError) -> NamedKey? {
        try await reading().lazy.compactMap(\.pair).first { $0.publicKey == key }
    }

    /// The URIs of all private keys, also of those that are to be destroyed.
    package func keyURIs() async throws(ProviderError) -> [String] { try await reading().map(\.key.uri) }

    // MARK: - Making

    /// Makes a pair. It has signed a probe when it is returned.
    ///
    /// - Parameters:
    ///   - type: The type of the key.
    ///   - store: The URI of the key store that makes it.
    ///   - isConfirmed: Whether each use of the private key asks a person, for good.
    ///   - interaction: Asks for the PIN of the key store.
    /// - Throws: `alreadyExists` if there is a pair of that name, which stays; `operationNotAllowed`, with the reason `busy`, while
    ///   another process changes pairs for minutes; as ``/CertificateProviding/KeyStore/make(_:_:remember:)`` and ``list()``.
    ///   There is no pair of that name then.
    @discardableResult public func create(
        _ name: KeyName, type: KeyType = .rsa2048, in store: String = defaultStore, isConfirmed: Bool = false,
        _ interaction: any UserInteraction
    ) async throws(ProviderError) -> NamedKey {
        let store = try await configured(store)
        let guarantees = store.properties.guarantees.intersection([.neverExportable])
        let new = NewKey(type, label: name.description, use: .signing, guarantees: guarantees)
        return try await make(name, new, in: store, isConfirmed: isConfirmed, imported: nil, interaction)
    }

    /// Takes a private key in, as a pair. The file that it is from stays as it is.
    ///
    /// - Parameters:
    ///   - pem: Has one private key: PKCS#8, PKCS#1 or SEC1, encrypted or not.
    ///   - password: That of the private key; `nil` for one that is not encrypted.
    ///   - store: The URI of a key store that takes in keys.
    ///   - isConfirmed: As for ``create(_:type:in:isConfirmed:_:)``.
    ///   - identities: The public keys of known identities: their keys become no pair.
    ///   - interaction: Asks for the PIN of the key store.
    /// - Throws: `wrongPassword`; `malformedData` and `unsupportedAlgorithm` for the key; `alreadyExists` also if the key store has
    ///   the private key already, or it is that of an identity; otherwise as ``create(_:type:in:isConfirmed:_:)``.
    @discardableResult public func importKey(
        _ name: KeyName, from pem: PEMFile, password: SecretBytes? = nil, in store: String = defaultStore,
        isConfirmed: Bool = false, notAmong identities: [PublicKeyInfo] = [], _ interaction: any UserInteraction
    ) async throws(ProviderError) -> NamedKey {
        let blocks = pem.blocks.filter(\.isPrivateKey)
        guard let block = blocks.first, blocks.count == 1 else {
            throw ProviderError(
                .malformedData,
                "\(pem.name) has \(blocks.isEmpty ? "no private key" : "\(blocks.count) private keys") in PEM; name a file with one."
            )
        }
        let store = try await configured(store)
        let key = try await environment.executor.run { () throws(ProviderError) in
            try OpenSSLLibrary().privateKey(of: block, in: pem.name, password: password)
        }
        guard key.publicKey.algorithm != .rsa || key.publicKey.bits >= KeyType.smallestRSA else {
            throw ProviderError(
                .unsupportedAlgorithm,
                "\(pem.name) has an RSA key of \(key.publicKey.bits) bits, whose signatures are refused; import one of at least "
                    + "\(KeyType.smallestRSA) bits.")
        }
        guard !identities.contains(key.publicKey) else {
            throw ProviderError(
                .alreadyExists,
                "\(pem.name) has the private key of an identity of this host, which becomes no named pair; make another key."
            )
        }
        let new = NewKey(pkcs8: try key.pkcs8Representation(), label: name.description)
        return try await make(
            name, new, in: store, isConfirmed: isConfirmed, imported: key.publicKey, interaction)
    }

    private func make(
        _ name: KeyName, _ new: NewKey, in store: any KeyStore, isConfirmed: Bool,
        imported: PublicKeyInfo?, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> NamedKey {
        _ = try await environment.executor.run { () throws(ProviderError) in
            try store.properties.check(new)
        }
        // Before a PIN is asked for, and before others have to wait for that.
        try await requireFree(name)
        try await store.check(interaction)
        return try await changing(interaction) { () async throws(ProviderError) in
            try await requireFree(name)
            try await destroyLeftovers(interaction)
            if let imported { try await requireNew(imported, in: store) }
            let made: any IdentityKey
            do throws(ProviderError) {
                made = try await store.make(new, interaction) {
                    [record, environment] key throws(ProviderError) in
                    let entry = PairRecord.Entry(
                        name: name.description, key: store.reference(to: key), confirm: isConfirmed, state: .making)
                    try await environment.executor.run { () throws(ProviderError) in
                        try record.change { $0.append(entry) }
                    }
                }
                let reference = store.reference(to: made)
                let pair = NamedKey(
                    name: name, publicKey: reference.publicKey, uri: reference.uri, isConfirmed: isConfirmed)
                // A key that does not work must not have a name.
                let probe = SigningContent(Identity.possessionProbe())
                _ = try await pair.signature(of: try pair.message(probe, for: made, pair.scheme()))
                try await setState(.made, of: reference)
                return pair
            } catch {
                // A key that cannot be destroyed now stays in the record, under a name that counts as absent.
                let reason = error
                try? await destroyLeftovers(interaction)
                throw reason
            }
        }
    }

    private func requireFree(_ name: KeyName) async throws(ProviderError) {
        guard try await exists(name) else { return }
        throw ProviderError(
            .alreadyExists,
            "A key pair named '\(name.shown)' exists already, and stays; use another name, or delete it first: "
                + "certprov keys delete \(DisplayText.shellQuoted(name.description))")
    }

    /// An import must not share a key with another pair or an identity, whose deletion would destroy it.
    private func requireNew(_ key: PublicKeyInfo, in store: any KeyStore) async throws(ProviderError) {
        if let pair = try await pair(of: key) {
            throw ProviderError(
                .alreadyExists, "The private key is that of the key pair '\(pair.name.shown)' already.")
        }
        guard let known = try await store.list().first(where: { $0.reference.publicKey == key }) else { return }
        throw ProviderError(
            .alreadyExists,
            "The key store has this private key already (\(DisplayText.visible(known.reference.uri))), for an identity or another "
                + "use; a named pair needs a key of its own.")
    }

    // MARK: - Using

    /// Signs content, and verifies the signature. If the pair was made so, a person is asked first, with the name of the pair and
    /// the SHA-256 of the content.
    ///
    /// - Parameters:
    ///   - content: Of a text, its UTF-8. A key that signs digests needs no more memory for much than for little. Ed25519, and a key
    ///     store that hashes by itself, take at most 64 MiB of a file.
    ///   - name: The name of the pair.
    ///   - hash: As for ``NamedKey/scheme(_:)``.
    ///   - interaction: Asks for the PIN of the key store, and for consent.
    /// - Returns: The signature: DER for ECDSA, the raw octets otherwise.
    /// - Throws: `notFound` if there is no pair of that name, or its private key is gone; `interactionRequired` if a person would
    ///   have to be asked, and `userCancelled` if they decline; `unsupportedAlgorithm` for a hash or an amount of content that the
    ///   key cannot do; `keyMismatch` if the signature does not verify; errors of the content, the login and the key store, and as
    ///   ``list()``.
    public func sign(
        _ content: SigningContent, with name: KeyName, hash: DigestAlgorithm? = nil,
        _ interaction: any UserInteraction
    ) async throws(ProviderError) -> [UInt8] {
        let pair = try await pair(named: name)
        let scheme = try pair.scheme(hash)
        if pair.isConfirmed { try requirePerson(interaction, pair) }
        let reference = KeyReference(publicKey: pair.publicKey, uri: pair.uri)
        guard let key = try await store(of: pair.uri).key(for: reference, interaction) else {
            throw ProviderError(
                .notFound,
                "The private key of '\(pair.name.shown)' is gone from its key store (\(DisplayText.visible(pair.uri))); delete the "
                    + "pair, and create it anew.")
        }
        let message = try await environment.executor.run { () throws(ProviderError) in
            try pair.message(content, for: key, scheme)
        }
        if pair.isConfirmed { try await confirm(message, pair, interaction) }
        return try await pair.signature(of: message)
    }

    private func requirePerson(
        _ interaction: any UserInteraction, _ pair: NamedKey
    ) throws(ProviderError) {
        if interaction.canAsk { return }
        throw ProviderError(
            .interactionRequired,
            "Each use of the key pair '\(pair.name.shown)' asks a person, and there is no terminal to ask at; sign at a terminal, or "
                + "use a pair that was created without --confirm.")
    }

    private func confirm(
        _ message: RawMessage, _ pair: NamedKey, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        let question =
            "Sign \(message.count) bytes with the key pair '\(pair.name.shown)'? Their SHA-256 is "
            + "\(DisplayText.hexadecimal(message.sha256 ?? []))."
        guard try await interaction.confirm(question) else {
            throw ProviderError(.userCancelled, "The signature with '\(pair.name.shown)' was declined.")
        }
    }

    // MARK: - Deleting

    /// Destroys a pair: private key, public key and name.
    ///
    /// - Parameters:
    ///   - keepingKey: Whether only the name goes, and the private key stays where it is: for a token that is lost. The key store is
    ///     not used then. A key in this host's identity store is destroyed all the same.
    ///   - interaction: Asks for the PIN of the key store.
    /// - Returns: Whether there was a pair of that name.
    /// - Throws: `deleteFailed` and errors of the login: the pair stays, unless its private key is gone already.
    ///   `operationNotAllowed`, with the reason `busy`, while another process changes pairs for minutes; as ``list()``.
    @discardableResult public func delete(
        _ name: KeyName, keepingKey: Bool = false, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool {
        let known = try await reading().filter { $0.isOf(name) }
        guard let entry = known.first(where: { $0.state == .made }) ?? known.first else { return false }
        let store = try await store(of: entry.key.uri)
        let location = try await environment.executor.run { store.location }
        let isLeft = keepingKey && location != .store
        // Before others have to wait for a person, and before anything changes.
        if !isLeft, entry.state == .made { try await store.check(interaction) }
        return try await changing(interaction) { () async throws(ProviderError) in
            let entries = try await reading().filter { $0.isOf(name) }
            for entry in entries where isLeft || entry.state == .made {
                if isLeft { try await remove(entry.key) } else { try await delete(entry.key, interaction) }
            }
            if !isLeft { try await destroyLeftovers(interaction) }
            return entries.contains { $0.state == .made }
        }
    }

    private func delete(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        try await setState(.deleting, of: key)
        do throws(ProviderError) {
            let store = try await store(of: key.uri)
            try await store.destroy(key, interaction)
        } catch {
            let reason = error
            // A pair that still works keeps its name.
            if let store = try? await store(of: key.uri),
                (try? await store.key(for: key, NoUserInteraction())) != nil
            {
                try await setState(.made, of: key)
            }
            throw reason
        }
        try await remove(key)
    }

    private func remove(_ key: KeyReference) async throws(ProviderError) {
        try await environment.executor.run { [record] () throws(ProviderError) in try record.remove(key) }
    }

    private func setState(
        _ state: PairRecord.Entry.State, of key: KeyReference
    ) async throws(ProviderError) {
        try await environment.executor.run { [record] () throws(ProviderError) in
            try record.setState(state, of: key)
        }
    }

    /// Destroys the remains of killed processes. A key that cannot be destroyed now stays in the record, and keeps no pair from
    /// being changed: its store may be lost.
    private func destroyLeftovers(_ interaction: any UserInteraction) async throws(ProviderError) {
        for left in try await reading() where left.state != .made {
            do throws(ProviderError) {
                if let open = try await openStore(of: left.key.uri) {
                    try await open.destroy(left.key, interaction)
                } else {
                    // Nothing is asked about a store that the operation is not about, nor is its PIN sent there.
                    let other = try await new(left.key.uri, pinSource: nil)
                    do throws(ProviderError) {
                        try await other.destroy(left.key, NoUserInteraction())
                    } catch {
                        await other.shutdown()
                        throw error
                    }
                    await other.shutdown()
                }
                try await remove(left.key)
            } catch {
                environment.logger.warning(
                    "the private key of a named pair that was not finished is left in its key store",
                    metadata: [
                        "name": "\(DisplayText.visible(left.name))", "key": "\(DisplayText.visible(left.key.uri))",
                        "reason": "\(error)",
                    ])
            }
        }
    }

    // MARK: -

    /// Ends the use of the key stores (``/CertificateProviding/KeyStore/shutdown()``).
    public func shutdown() async {
        for (_, store) in stores.withLock(\.self) { await store.shutdown() }
    }

    private func reading() async throws(ProviderError) -> [PairRecord.Entry] {
        try await environment.executor.run { [record] () throws(ProviderError) in try record.entries() }
    }

    /// Runs a change of pairs, and no other at the same time, in any process.
    private func changing<T>(
        _ interaction: any UserInteraction, _ change: () async throws(ProviderError) -> T
    ) async throws(ProviderError) -> T {
        for look in 0..<Self.looks {
            if let result = try await environment.withLease(of: PairRecord.name, change) { return result }
            if look == 0 { interaction.report("Waiting for another process that changes named key pairs") }
            do { try await environment.sleep(Self.pause) } catch {
                throw ProviderError(.userCancelled, "The change of a named key pair was cancelled.")
            }
        }
        throw ProviderError(
            .operationNotAllowed,
            "Another process changes named key pairs, and takes long; try again when it has ended.",
            reason: .busy)
    }

    /// The pause between two looks at the lease, and how many there are: three minutes, longer than a card takes for a key.
    private static let pause = Duration.milliseconds(50)
    private static let looks = 3600

    /// The store of a key that was made already. A plugin may be asked, which blocks.
    private func openStore(of uri: String) async throws(ProviderError) -> (any KeyStore)? {
        let open = stores.withLock(\.self)
        return try await environment.executor.run { () throws(ProviderError) in
            open.first { $0.store.holds(keyURI: uri) }?.store
        }
    }

    private func configured(_ uri: String) async throws(ProviderError) -> any KeyStore {
        if let known = stores.withLock(\.self).first(where: { $0.uri == uri }) { return known.store }
        return try await kept(uri)
    }

    private func store(of uri: String) async throws(ProviderError) -> any KeyStore {
        if let open = try await openStore(of: uri) { return open }
        return try await kept(uri)
    }

    private func kept(_ uri: String) async throws(ProviderError) -> any KeyStore {
        let store = try await new(uri, pinSource: pinSource)
        stores.withLock { $0.append((uri, store)) }
        return store
    }

    private func new(_ uri: String, pinSource: SecretSource?) async throws(ProviderError) -> any KeyStore {
        let keyStores = environment.keyStores
        return try await environment.executor.run { () throws(ProviderError) in
            try keyStores.store(uri, pinSource: pinSource, parameter: "key")
        }
    }
}

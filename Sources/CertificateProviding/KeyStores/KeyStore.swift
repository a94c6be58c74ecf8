/// A place that makes and keeps private keys, such as this host's sealed store or a PKCS#11 token.
///
/// A store is made for one URI, which names the place: `store:`, or `pkcs11:token=hsm`. Its users need no knowledge of
/// the device behind it. A key is found again by its ``KeyReference``, whose URI also finds the store
/// (``KeyStores/store(_:pinSource:parameter:)``).
///
/// A store is shared between tasks. Calls that take a ``UserInteraction`` may ask a person, for a PIN say; the others
/// never do, and block for a bounded time.
public protocol KeyStore: Sendable {
    /// The kind of the store, and the keys that it makes. A plugin may be asked once, which blocks for a bounded time.
    var properties: KeyStoreProperties { get }

    /// Returns whether a key's URI names a key in the place that this store was made for. Does no I/O, but that a plugin is asked,
    /// and started for it; true if that fails, so that the next call shows why.
    func holds(keyURI: String) -> Bool

    /// Checks that the store can be used, and logs in to it where that is needed. Makes, marks and writes nothing.
    ///
    /// - Throws: `interactionRequired` where `interaction` cannot ask the person that the store needs, errors of the login,
    ///   and those that the use of a key would have.
    func check(_ interaction: any UserInteraction) async throws(ProviderError)

    /// Makes a key pair, or takes in one that was made elsewhere.
    ///
    /// A key that was not written down is destroyed: when `remember` throws, when the task is cancelled, and, where the
    /// process ends in between, at the next use of the store.
    ///
    /// - Parameter remember: Writes the key's URI and public key down, durably. The key is ready for use when it returns.
    /// - Throws: `unsupportedAlgorithm` for what the store's ``properties`` exclude (``KeyStoreProperties/check(_:)``) or
    ///   its device cannot do, `malformedData` for a key to take in, `storeWriteFailed` where it cannot be written to,
    ///   errors of the login, and what `remember` throws.
    func make(
        _ new: NewKey, _ interaction: any UserInteraction,
        remember: @escaping @Sendable (any IdentityKey) async throws(ProviderError) -> Void
    ) async throws(ProviderError) -> any IdentityKey

    /// Returns the private key of a reference; `nil` when there is none. A reference with an empty URI means the key by its
    /// public key alone, wherever the store has it. Marks the key as owned, so that it is no
    /// longer destroyed as an orphan.
    ///
    /// - Throws: Errors of the login, and what the store reports.
    func key(
        for key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> (any IdentityKey)?

    /// As ``key(for:_:)``, without a prompt. Marks the key as owned, too.
    ///
    /// - Throws: Also `interactionRequired` where a person would have to be asked.
    func storedKey(for key: KeyReference) throws(ProviderError) -> (any IdentityKey)?

    /// Returns the keys of the store that it can see without a prompt, in no particular order. Suspends while the store
    /// is read.
    ///
    /// - Throws: `storeReadFailed` for a store that cannot be read, and errors of the device.
    func list() async throws(ProviderError) -> [KeyDescription]

    /// Destroys a private key, its public key and the certificates for it, for good. Succeeds when there is nothing,
    /// and completes a destruction that was interrupted.
    ///
    /// - Returns: Whether the private key was there. True also for a plugin that does not say.
    /// - Throws: `deleteFailed`, naming the remaining objects, and errors of the login.
    @discardableResult func destroy(
        _ key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Bool

    /// As ``destroy(_:_:)``, without a prompt.
    ///
    /// - Throws: Also `interactionRequired` where a person would have to be asked.
    @discardableResult func destroyStored(_ key: KeyReference) throws(ProviderError) -> Bool

    /// Returns what a destruction would destroy outside this host's own store, one sentence each, for a person to read
    /// before. Without a prompt. Suspends while a token is read.
    ///
    /// - Throws: `tokenNotPresent`, `interactionRequired` if the device must be asked for a PIN, and other errors of
    ///   the store.
    func announceDestruction(of key: KeyReference) async throws(ProviderError) -> [String]

    /// Keeps certificates beside the keys; `nil` for a store of keys alone. A plugin may be asked once, which blocks for a
    /// bounded time.
    var certificates: (any CertificateStoring)? { get }

    /// Ends the use of what the store holds open, such as a token's sessions, within a few seconds, whatever hangs.
    /// Every later call throws `operationNotAllowed` where it would need that.
    func shutdown() async
}

extension KeyStore {
    /// Returns no sentences, and throws nothing: the default for a store whose keys are this host's own.
    public func announceDestruction(of key: KeyReference) async throws(ProviderError) -> [String] { [] }
    /// `nil`: the default for a store of keys alone.
    public var certificates: (any CertificateStoring)? { nil }
    /// Does nothing: the default for a store that holds nothing open.
    public func shutdown() async {}

    /// The scheme of its URIs, as its ``properties`` say.
    public var scheme: String { properties.scheme }
    /// The location of its keys, as its ``properties`` say.
    public var location: KeyLocation { properties.location }
    /// The types of key that it makes, with their uses, as its ``properties`` say.
    public var makes: [KeyType: KeyUse] { properties.makes }

    /// Returns what finds the key again, also after the configuration of the store has changed. The URI is empty for a key
    /// without one.
    public func reference(to key: any IdentityKey) -> KeyReference {
        KeyReference(publicKey: key.publicKey, uri: (key.uri ?? "") + properties.query)
    }

    /// As ``CertificateStoring/identity(_:_:)``.
    ///
    /// - Throws: Also `notFound` for a store of keys alone.
    public func identity(
        _ uri: String, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity {
        if let certificates { return try await certificates.identity(uri, interaction) }
        throw ProviderError(
            .notFound,
            "The key store '\(scheme):' keeps no certificates, and so has no identity of its own; name one that does, such as "
                + "pkcs11:, or a file.")
    }

    /// Checks that an issued chain is for the key and that the key signs a probe, and stores the chain beside the key,
    /// if the store keeps certificates.
    ///
    /// - Parameter chain: Leaf first.
    /// - Throws: `keyMismatch` when the leaf is for another key or the probe does not verify, and as
    ///   ``CertificateStoring/storeChain(_:for:_:)``.
    public func storeChain(
        _ chain: [X509Certificate], for key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(ProviderError) {
        if let certificates { return try await certificates.storeChain(chain, for: key, interaction) }
        let origin = Identity.Provenance(provider: ProviderID(rawValue: scheme) ?? ProviderID("key"))
        try await Identity(certificateChain: chain, key: key, provenance: origin).verifyPossession()
    }
}

/// The ability of a ``KeyStore`` to keep certificates beside its keys, where other programs find them too.
public protocol CertificateStoring: Sendable {
    /// Returns an identity of the store: a key, and the chain that is stored beside it. The key has signed a probe.
    ///
    /// - Parameter uri: Names the identity, in the place that the store was made for.
    /// - Throws: `notFound` where no certificate is beside the key, `configurationInvalid` where the URI names several,
    ///   and errors of the login.
    func identity(
        _ uri: String, _ interaction: any UserInteraction
    ) async throws(ProviderError) -> Identity

    /// Checks that an issued chain is for the key and that the key signs a probe, and stores the chain beside the key.
    ///
    /// Certificates that are there stay; ``removeOtherCertificates(than:of:_:)`` removes them once the new one is in
    /// use.
    ///
    /// - Parameter chain: Leaf first.
    /// - Throws: `keyMismatch` when the leaf is for another key or the probe does not verify, `storeWriteFailed`. Nothing
    ///   of the chain is left then; the key is.
    func storeChain(
        _ chain: [X509Certificate], for key: any IdentityKey, _ interaction: any UserInteraction
    ) async throws(ProviderError)

    /// Removes every certificate for a key but `leaf`. Succeeds where there is none.
    ///
    /// - Throws: `deleteFailed`, and errors of the login.
    func removeOtherCertificates(
        than leaf: X509Certificate, of key: KeyReference, _ interaction: any UserInteraction
    ) async throws(ProviderError)
}

/// A key of a ``KeyStore``, as a listing shows it.
public struct KeyDescription: Sendable {
    /// Finds the key again.
    public var reference: KeyReference
    /// The name that people gave it.
    public var label: String?
    /// The kind of place that holds the key.
    public var location: KeyLocation

    /// Creates a description.
    public init(_ reference: KeyReference, label: String? = nil, location: KeyLocation) {
        self.reference = reference
        self.label = label
        self.location = location
    }
}

/// The operations that a private key is permitted. Use one per key: a key with several uses can be abused for one of
/// them through another.
public struct KeyUse: OptionSet, Hashable, Sendable {
    public let rawValue: Int
    public init(rawValue: Int) { self.rawValue = rawValue }

    /// Signatures, with every scheme that fits the key (`CKA_SIGN` in a token).
    public static let signing = Self(rawValue: 1)
    /// RSAES-PKCS1-v1_5 (RFC 8017, section 7.2), which SCEP needs. RSA only.
    public static let pkcs1Decryption = Self(rawValue: 2)
    /// RSAES-OAEP (RFC 8017, section 7.1) with SHA-256, SHA-1 or both, as the store can; the key's
    /// ``KeyDecrypting/decryptionSchemes`` say which. RSA only.
    public static let oaepDecryption = Self(rawValue: 4)
}

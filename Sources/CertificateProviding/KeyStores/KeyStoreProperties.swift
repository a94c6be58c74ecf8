/// The properties of a ``KeyStore``: where its keys are, and which it makes.
public struct KeyStoreProperties: Sendable {
    /// The scheme of its URIs, in lower case and without the colon: `pkcs11`.
    public let scheme: String
    /// The location of its keys, as identities show it.
    public let location: KeyLocation
    /// The types of key that the store makes, and the uses that one key of the type can have. A particular device may
    /// be able to do less; ``KeyStore/make(_:_:remember:)`` then throws.
    public let makes: [KeyType: KeyUse]
    /// Whether the store takes in keys that were made elsewhere, by an enrolment server say.
    public let importsKeys: Bool
    /// Whether the keys that it makes can prove where they live (``IdentityKey/attester``).
    public let attestsKeys: Bool
    /// The demands on a key that a caller of ``KeyStore/make(_:_:remember:)`` can have.
    public let guarantees: Set<KeyGuarantee>
    /// Follows the URI of a key in its reference, so that the reference leads to this place: `?module-path=…`. Empty for most.
    public let query: String

    /// Creates the properties.
    public init(
        scheme: String, location: KeyLocation, makes: [KeyType: KeyUse], importsKeys: Bool = false,
        attestsKeys: Bool = false, guarantees: Set<KeyGuarantee> = [], query: String = ""
    ) {
        (self.scheme, self.location, self.makes, self.importsKeys) = (scheme, location, makes, importsKeys)
        (self.attestsKeys, self.guarantees, self.query) = (attestsKeys, guarantees, query)
    }

    /// Checks that the store makes such a key. Every store does so before it makes one.
    ///
    /// - Returns: The type of the key; `nil` for one to take in.
    /// - Throws: `unsupportedAlgorithm` for a type, a use or a guarantee that is not among the properties, and for a key to
    ///   take in where the store takes in none.
    @discardableResult public func check(_ new: NewKey) throws(ProviderError) -> KeyType? {
        func refused(_ text: String) -> ProviderError {
            ProviderError(.unsupportedAlgorithm, "The key store '\(scheme):' \(text)")
        }
        if let missing = new.guarantees.subtracting(guarantees).map(\.rawValue).min() {
            throw refused("cannot guarantee '\(missing)' of a key; use another key store.")
        }
        guard let type = new.type else {
            if importsKeys { return nil }
            throw refused("takes in no key that was made elsewhere; use another key store.")
        }
        guard let uses = makes[type] else {
            let others = makes.keys.map(\.rawValue).sorted()
            throw refused("makes no keys of type \(type)" + (others.isEmpty ? "." : "; use \(others.alternatives)."))
        }
        guard uses.isSuperset(of: new.use) else {
            throw refused(
                "makes no keys of type \(type) for that use; use "
                    + (type.isRSA ? "another key store." : "an RSA key to decrypt."))
        }
        return type
    }

    /// As ``check(_:)``, for a store that takes in no keys.
    ///
    /// - Returns: The type of the key to make.
    /// - Throws: As ``check(_:)``.
    public func type(of new: NewKey) throws(ProviderError) -> KeyType {
        if let type = try check(new) { return type }
        throw ProviderError(
            .unsupportedAlgorithm,
            "The key store '\(scheme):' takes in no key that was made elsewhere; use another key store.")
    }
}

/// A demand on a key that a ``KeyStore`` makes. Open: later versions know more, and a store refuses one that it cannot keep.
public struct KeyGuarantee: RawRepresentable, Hashable, Sendable {
    public let rawValue: String
    public init(rawValue: String) { self.rawValue = rawValue }

    /// The private key can never be read out of the store, as in a token.
    public static let neverExportable = Self(rawValue: "neverExportable")
    /// The private key can be read out of the store (``IdentityKey/exporter``).
    public static let exportable = Self(rawValue: "exportable")
}

/// A key that a ``KeyStore`` is to make, or to take in.
public struct NewKey: Sendable {
    /// The type of a key to make; `nil` for one to take in.
    public let type: KeyType?
    /// A key to take in: an unencrypted PKCS#8 key, DER; `nil` for one to make.
    public let pkcs8: SecretBytes?
    /// A name for people. Other tools show it as well.
    public let label: String
    /// The uses of the key: no other one is possible.
    public let use: KeyUse
    /// The demands that the store must keep. Without one, the store does as it does for all keys.
    public let guarantees: Set<KeyGuarantee>

    /// A key to make.
    public init(_ type: KeyType, label: String, use: KeyUse = .signing, guarantees: Set<KeyGuarantee> = []) {
        (self.type, pkcs8, self.label, self.use, self.guarantees) = (type, nil, label, use, guarantees)
    }

    /// A key to take in, for every use that its type permits.
    ///
    /// - Parameter pkcs8: An unencrypted PKCS#8 key (RFC 5208, RFC 5958), DER.
    public init(pkcs8: SecretBytes, label: String, guarantees: Set<KeyGuarantee> = []) {
        (type, self.pkcs8, self.label, self.guarantees) = (nil, pkcs8, label, guarantees)
        use = [.signing, .pkcs1Decryption, .oaepDecryption]
    }
}

extension SoftwareKey {
    /// Generates a new key, or reads one to take in. RSA takes a second or more.
    ///
    /// - Throws: `malformedData` and `unsupportedAlgorithm` for a key to take in.
    public init(_ new: NewKey, location: KeyLocation) throws(ProviderError) {
        if let pkcs8 = new.pkcs8 {
            try self.init(pkcs8: pkcs8, location: location)
        } else {
            var made = try Self.generate(new.type ?? .p256, location: location)
            made.use = new.use
            self = made
        }
    }
}

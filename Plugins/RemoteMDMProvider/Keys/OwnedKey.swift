import CertificateProviding

/// What is remembered of a private key: the key itself, or where it is.
enum OwnedKey: Sendable {
    /// PKCS#8, in the entry or record itself, as before there were key stores.
    case sealed(SecretBytes)
    /// In a key store.
    case stored(KeyReference)

    /// The key of a stored identity; `nil` where that has none that could be found.
    init?(_ entry: StoredIdentity) {
        if let privateKey = entry.privateKey {
            self = .sealed(privateKey)
        } else if let key = entry.key {
            self = .stored(key)
        } else {
            return nil
        }
    }

    func isSame(as other: OwnedKey) -> Bool {
        switch (self, other) {
        case (.sealed(let one), .sealed(let other)): one == other
        case (.stored(let one), .stored(let other)): one.publicKey == other.publicKey
        case (.sealed, .stored), (.stored, .sealed): false
        }
    }

    /// A stored identity with this key.
    func entry(
        with chain: [X509Certificate], trust: TrustBundle?, attributes: [String: String]
    ) -> StoredIdentity {
        switch self {
        case .sealed(let privateKey):
            StoredIdentity(certificateChain: chain, privateKey: privateKey, trust: trust, attributes: attributes)
        case .stored(let key):
            StoredIdentity(certificateChain: chain, key: key, trust: trust, attributes: attributes)
        }
    }

    /// What finds the key in its key store; `nil` for one that rests with its identity.
    var reference: KeyReference? {
        if case .stored(let key) = self { key } else { nil }
    }
}

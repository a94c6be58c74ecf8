import CertificateProviding

/// What is remembered of a private key: the key itself, or where it is.
enum KeptKey: Sendable {
    /// PKCS#8, which rests in the store.
    case sealed(SecretBytes)
    /// In a token, under this URI.
    case token(uri: String, publicKey: PublicKeyInfo)

    /// The key of a stored identity; `nil` where that has none that could be found.
    init?(_ entry: StoredIdentity) {
        if let privateKey = entry.privateKey {
            self = .sealed(privateKey)
        } else if let uri = entry.attributes[Self.attribute], let leaf = entry.certificateChain.first {
            self = .token(uri: uri, publicKey: leaf.publicKey)
        } else {
            return nil
        }
    }

    private static let attribute = "key"

    func isSame(as other: KeptKey) -> Bool {
        switch (self, other) {
        case (.sealed(let one), .sealed(let other)): one == other
        case (.token(_, let one), .token(_, let other)): one.isSameKey(as: other)
        case (.sealed, .token), (.token, .sealed): false
        }
    }

    /// A stored identity with this key.
    func entry(with chain: [X509Certificate], attributes: [String: String]) -> StoredIdentity {
        switch self {
        case .sealed(let privateKey):
            StoredIdentity(certificateChain: chain, privateKey: privateKey, attributes: attributes)
        case .token(let uri, _):
            StoredIdentity(
                certificateChain: chain, privateKey: nil,
                attributes: attributes.merging([Self.attribute: uri]) { $1 })
        }
    }

    var tokenURI: String? {
        if case .token(let uri, _) = self { uri } else { nil }
    }
}

import FoundationEssentials

/// A key of a ``KeyStore``, as a program writes it down to find it again. Not secret.
public struct KeyReference: Sendable {
    /// The public key that belongs to the private key. A store finds the key by it, with the help of the URI.
    public var publicKey: PublicKeyInfo
    /// The URI of the private key, without any PIN.
    public var uri: String

    /// Creates a reference. The URI is not checked; ``KeyStores/store(_:pinSource:parameter:)`` does that.
    ///
    /// - Parameter uri: The URI of the private key, without any PIN; empty for a key without one. A scheme alone, such as `store:`, is
    ///   that of a place and names no key: it counts as empty.
    public init(publicKey: PublicKeyInfo, uri: String) {
        self.publicKey = publicKey
        let isScheme = uri.firstIndex(of: ":").map { uri.index(after: $0) == uri.endIndex } ?? false
        self.uri = isScheme ? "" : uri
    }
}

/// For a provider's record of its keys.
extension KeyReference: Codable {
    private enum CodingKeys: String, CodingKey {
        case publicKey, uri
    }

    public init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        self.init(
            publicKey: try PublicKeyInfo(derRepresentation: container.decode(Data.self, forKey: .publicKey)),
            uri: try container.decode(String.self, forKey: .uri))
    }

    public func encode(to encoder: any Encoder) throws {
        var container = encoder.container(keyedBy: CodingKeys.self)
        try container.encode(Data(publicKey.derRepresentation), forKey: .publicKey)
        try container.encode(uri, forKey: .uri)
    }
}

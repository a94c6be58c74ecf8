import CertificateProviding
import SwiftASN1

/// The CSR attributes that a server wants in a request (RFC 7030, section 4.5.2; RFC 9908). Unknown ones are ignored.
struct CSRAttributes: Sendable, Equatable {
    /// Whether the request must contain the channel binding (RFC 7030, section 3.5).
    var wantsBinding = false
    /// The key type, if the server names one that is supported.
    var keyType: KeyType?
    /// The name of a key type that is not supported.
    var unknownKey: String?
    /// The signature schemes with the wanted hashes, for all key types.
    var schemes: [SignatureScheme] = []
    var extensions: [ExtensionWish] = []

    /// An extension that the server wants in the request.
    struct ExtensionWish: Sendable, Equatable {
        let type: ASN1ObjectIdentifier
        var isCritical = false
        /// The value of the extension; `nil` if the server names none.
        var value: [UInt8]?
    }

    static let challengePassword: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 9, 7]
    static let extensionRequest: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 9, 14]
    /// More extensions, and longer ones (in bytes), than any certificate has.
    private static let maximumExtensions = 16
    private static let maximumValue = 4096

    init() {}

    /// - Throws: `protocolError`.
    init(derRepresentation bytes: [UInt8]) throws(ProviderError) {
        do {
            let nodes = try DER.sequence(of: AttributeOrOID.self, identifier: .sequence, rootNode: try DER.parse(bytes))
            for node in nodes { try note(node) }
        } catch {
            throw ProviderError(
                .protocolError,
                "The server's CSR attributes (csrattrs) cannot be read: the answer is damaged. Ask its administrator.",
                underlying: error)
        }
        guard extensions.count <= Self.maximumExtensions,
            extensions.allSatisfy({ $0.value?.count ?? 0 <= Self.maximumValue })
        else {
            throw ProviderError(
                .protocolError,
                "The server's CSR attributes (csrattrs) exceed the limit of \(Self.maximumExtensions) extensions of "
                    + "\(Self.maximumValue) bytes each; ask its administrator.")
        }
    }

    /// Returns the key type to make; `nil` if the server leaves it open.
    ///
    /// - Throws: `unsupportedAlgorithm` for a key type that is not supported.
    func keyToMake() throws(ProviderError) -> KeyType? {
        if let keyType { return keyType }
        guard let unknownKey else { return schemes.first.flatMap { Self.keys[$0] } }
        throw ProviderError(
            .unsupportedAlgorithm,
            "The server wants a key of type \(unknownKey) (csrattrs), which is not supported; configure the server "
                + "for another type, or set 'key-type' to one that it also accepts.")
    }

    private mutating func note(_ item: AttributeOrOID) throws {
        switch item.identifier {
        case Self.challengePassword: wantsBinding = true
        case Self.extensionRequest:
            for value in item.values {
                if value.identifier == .objectIdentifier {
                    note(ExtensionWish(type: try ASN1ObjectIdentifier(derEncoded: value)))
                } else {
                    for node in try value.children { note(try ExtensionWish(derEncoded: node)) }
                }
            }
        case [2, 5, 29, 15], [2, 5, 29, 17], [2, 5, 29, 37]: note(ExtensionWish(type: item.identifier))
        case let algorithm:
            if let wanted = Self.hashes[algorithm] { schemes += wanted.filter { !schemes.contains($0) } }
            if let key = item.key { note(key) }
        }
    }

    /// Adds an extension. The first entry for a type wins.
    private mutating func note(_ wish: ExtensionWish) {
        if !extensions.contains(where: { $0.type == wish.type }) { extensions.append(wish) }
    }

    private mutating func note(_ key: AttributeOrOID.Key) {
        switch key {
        case .known(let type): keyType = keyType ?? type
        case .unknown(let name): unknownKey = unknownKey ?? name
        }
    }

    /// Algorithms for digests and signatures, with the signature schemes that use them.
    private static let hashes: [ASN1ObjectIdentifier: [SignatureScheme]] = [
        [2, 16, 840, 1, 101, 3, 4, 2, 1]: [.ecdsaP256SHA256, .rsaPKCS1SHA256],
        [2, 16, 840, 1, 101, 3, 4, 2, 2]: [.ecdsaP384SHA384, .rsaPKCS1SHA384],
        [2, 16, 840, 1, 101, 3, 4, 2, 3]: [.ecdsaP521SHA512, .rsaPKCS1SHA512],
        [1, 2, 840, 10045, 4, 3, 2]: [.ecdsaP256SHA256], [1, 2, 840, 10045, 4, 3, 3]: [.ecdsaP384SHA384],
        [1, 2, 840, 10045, 4, 3, 4]: [.ecdsaP521SHA512], [1, 2, 840, 113549, 1, 1, 11]: [.rsaPKCS1SHA256],
        [1, 2, 840, 113549, 1, 1, 12]: [.rsaPKCS1SHA384], [1, 2, 840, 113549, 1, 1, 13]: [.rsaPKCS1SHA512],
    ]

    /// The key type for each signature scheme. A curve has one hash here, as in TLS 1.3.
    private static let keys: [SignatureScheme: KeyType] = [
        .ecdsaP256SHA256: .p256, .ecdsaP384SHA384: .p384, .ecdsaP521SHA512: .p521, .rsaPKCS1SHA256: .rsa2048,
        .rsaPKCS1SHA384: .rsa2048, .rsaPKCS1SHA512: .rsa2048,
    ]
}

extension CSRAttributes.ExtensionWish {
    /// Reads an `Extension` (RFC 5280, section 4.1), or an incomplete one of a template.
    init(derEncoded node: ASN1Node) throws {
        self = try DER.sequence(node, identifier: .sequence) { fields in
            var wish = Self(type: try ASN1ObjectIdentifier(derEncoded: &fields))
            while let field = fields.next() {
                if field.identifier == .boolean {
                    wish.isCritical = try Bool(berEncoded: field)
                } else {
                    wish.value = Array(try ASN1OctetString(derEncoded: field).bytes)
                }
            }
            if wish.value?.isEmpty == true { wish.value = nil }
            return wish
        }
    }
}

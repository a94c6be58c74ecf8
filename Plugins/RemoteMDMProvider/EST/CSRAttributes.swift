import CertificateProviding
import SwiftASN1

/// What a server wants to see in a request (RFC 7030, section 4.5.2; RFC 9908). What nothing is known of is passed over.
struct CSRAttributes: Sendable, Equatable {
    /// Whether the request is to be bound to its connection (RFC 7030, section 3.5).
    var wantsBinding = false
    /// The kind of key, where it is said and can be made.
    var keyType: KeyType?
    /// A kind of key that cannot be made.
    var unknownKey: String?
    /// Signatures with the hashes that are wanted, by whatever key.
    var schemes: [SignatureScheme] = []
    var extensions: [ExtensionWish] = []

    /// An extension that the request is to ask for.
    struct ExtensionWish: Sendable, Equatable {
        let type: ASN1ObjectIdentifier
        var isCritical = false
        /// What is in the extension; `nil` where the server says nothing of that.
        var value: [UInt8]?
    }

    static let challengePassword: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 9, 7]
    static let extensionRequest: ASN1ObjectIdentifier = [1, 2, 840, 113549, 1, 9, 14]
    /// More, and longer ones, than any certificate has.
    private static let maximumExtensions = 16
    private static let maximumValue = 4096

    init() {}

    /// - Throws: `protocolError`.
    init(derRepresentation bytes: [UInt8]) throws(CertificateProviderError) {
        do {
            let nodes = try DER.sequence(of: AttributeOrOID.self, identifier: .sequence, rootNode: try DER.parse(bytes))
            for node in nodes { try note(node) }
        } catch {
            throw CertificateProviderError(
                .protocolError, "What the server wants in requests (csrattrs) cannot be read: it is damaged.",
                underlying: error)
        }
        guard extensions.count <= Self.maximumExtensions,
            extensions.allSatisfy({ $0.value?.count ?? 0 <= Self.maximumValue })
        else {
            throw CertificateProviderError(
                .protocolError,
                "The server wants more extensions in requests (csrattrs), or longer ones, than are asked for.")
        }
    }

    /// The kind of key to make; `nil` where the server leaves that open.
    ///
    /// - Throws: `unsupportedAlgorithm` for one that cannot be made.
    func keyToMake() throws(CertificateProviderError) -> KeyType? {
        if let keyType { return keyType }
        guard let unknownKey else { return schemes.first.flatMap { Self.keys[$0] } }
        throw CertificateProviderError(
            .unsupportedAlgorithm,
            "The server wants a key of kind \(unknownKey) (csrattrs), which cannot be made here; have it take another one, "
                + "or set 'key-type' to one that it takes as well.")
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

    /// Of two wishes for the same extension the first.
    private mutating func note(_ wish: ExtensionWish) {
        if !extensions.contains(where: { $0.type == wish.type }) { extensions.append(wish) }
    }

    private mutating func note(_ key: AttributeOrOID.Key) {
        switch key {
        case .known(let type): keyType = keyType ?? type
        case .unknown(let name): unknownKey = unknownKey ?? name
        }
    }

    /// Digests, and signatures with them.
    private static let hashes: [ASN1ObjectIdentifier: [SignatureScheme]] = [
        [2, 16, 840, 1, 101, 3, 4, 2, 1]: [.ecdsaP256SHA256, .rsaPKCS1SHA256],
        [2, 16, 840, 1, 101, 3, 4, 2, 2]: [.ecdsaP384SHA384, .rsaPKCS1SHA384],
        [2, 16, 840, 1, 101, 3, 4, 2, 3]: [.ecdsaP521SHA512, .rsaPKCS1SHA512],
        [1, 2, 840, 10045, 4, 3, 2]: [.ecdsaP256SHA256], [1, 2, 840, 10045, 4, 3, 3]: [.ecdsaP384SHA384],
        [1, 2, 840, 10045, 4, 3, 4]: [.ecdsaP521SHA512], [1, 2, 840, 113549, 1, 1, 11]: [.rsaPKCS1SHA256],
        [1, 2, 840, 113549, 1, 1, 12]: [.rsaPKCS1SHA384], [1, 2, 840, 113549, 1, 1, 13]: [.rsaPKCS1SHA512],
    ]

    /// The keys that can sign so. A curve has one hash here, as in TLS 1.3.
    private static let keys: [SignatureScheme: KeyType] = [
        .ecdsaP256SHA256: .p256, .ecdsaP384SHA384: .p384, .ecdsaP521SHA512: .p521, .rsaPKCS1SHA256: .rsa2048,
        .rsaPKCS1SHA384: .rsa2048, .rsaPKCS1SHA512: .rsa2048,
    ]
}

extension CSRAttributes.ExtensionWish {
    /// Reads an `Extension` (RFC 5280, section 4.1), or what a template leaves of it.
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

import CertificateProviding

/// The plain encoding of a stored identity: a sequence of fields (``/CertificateProviding/RecordField``).
enum StoredIdentityCoding {
    private enum Tag: UInt8 {
        /// A certificate, DER; the leaf first.
        case certificate = 1
        /// The private key, PKCS#8; at most one.
        case privateKey = 2
        /// A name, a NUL and a value, in UTF-8.
        case attribute = 3
        /// A certificate of the trust bundle, DER.
        case trust = 4
    }

    struct Malformed: Error { var what: String }

    /// Returns the reason why `identity` cannot be encoded; `nil` if it can.
    static func flaw(of identity: StoredIdentity) -> String? {
        if identity.certificateChain.isEmpty { return "it has no certificate" }
        // The value may have one: the first NUL ends the name.
        return identity.attributes.keys.contains { $0.utf8.contains(0) } ? "an attribute's name contains a NUL" : nil
    }

    static func encode(_ identity: StoredIdentity) -> SecretBytes {
        func field(_ tag: Tag, _ bytes: some Collection<UInt8>) -> RecordField { RecordField(tag.rawValue, bytes) }
        var fields = identity.certificateChain.map { field(.certificate, $0.derRepresentation) }
        fields += (identity.trust?.certificates ?? []).map { field(.trust, $0.derRepresentation) }
        if let key = identity.privateKey { fields.append(RecordField(Tag.privateKey.rawValue, key)) }
        fields += identity.attributes.sorted { $0.key < $1.key }.map {
            field(.attribute, "\($0.key)\0\($0.value)".utf8)
        }
        return RecordField.encode(fields)
    }

    static func decode(_ record: SecretBytes) throws -> StoredIdentity {
        var result = StoredIdentity(certificateChain: [], privateKey: nil)
        var trust: [X509Certificate] = []
        for field in try RecordField.decode(record) {
            switch Tag(rawValue: field.tag) {
            case .certificate: result.certificateChain.append(try X509Certificate(derRepresentation: field.bytes))
            case .trust: trust.append(try X509Certificate(derRepresentation: field.bytes))
            case .privateKey:
                guard result.privateKey == nil else { throw Malformed(what: "two private keys") }
                result.privateKey = field.secret
            case .attribute:
                let text = field.bytes
                guard let separator = text.firstIndex(of: 0) else { throw Malformed(what: "a nameless attribute") }
                let name = String(decoding: text[..<separator], as: UTF8.self)
                result.attributes[name] = String(decoding: text[(separator + 1)...], as: UTF8.self)
            case nil: throw Malformed(what: "an unknown field")
            }
        }
        guard !result.certificateChain.isEmpty else { throw Malformed(what: "no certificate") }
        result.trust = TrustBundle(trust)
        return result
    }
}

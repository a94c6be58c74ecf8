import CertificateProviding

/// The plain encoding of a stored identity: a sequence of fields, each a tag (one byte), a length (four bytes,
/// big-endian) and the content. Decoded in place, so that the private key is copied only between wiped buffers.
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
        let attributes = identity.attributes.sorted { $0.key < $1.key }.map { Array("\($0.key)\0\($0.value)".utf8) }
        let size =
            identity.certificateChain.reduce(0) { $0 + 5 + $1.derRepresentation.count }
            + (identity.trust?.certificates ?? []).reduce(0) { $0 + 5 + $1.derRepresentation.count }
            + (identity.privateKey.map { 5 + $0.count } ?? 0) + attributes.reduce(0) { $0 + 5 + $1.count }
        return SecretBytes(count: size) { buffer in
            var offset = 0
            func append(_ tag: Tag, _ bytes: UnsafeRawBufferPointer) {
                buffer[offset] = tag.rawValue
                buffer.storeBytes(of: UInt32(bytes.count).bigEndian, toByteOffset: offset + 1, as: UInt32.self)
                UnsafeMutableRawBufferPointer(rebasing: buffer[(offset + 5)...]).copyMemory(from: bytes)
                offset += 5 + bytes.count
            }
            for certificate in identity.certificateChain {
                certificate.derRepresentation.withUnsafeBytes { append(.certificate, $0) }
            }
            for certificate in identity.trust?.certificates ?? [] {
                certificate.derRepresentation.withUnsafeBytes { append(.trust, $0) }
            }
            identity.privateKey?.withUnsafeBytes { append(.privateKey, $0) }
            for attribute in attributes { attribute.withUnsafeBytes { append(.attribute, $0) } }
        }
    }

    static func decode(_ bytes: UnsafeRawBufferPointer) throws -> StoredIdentity {
        var result = StoredIdentity(certificateChain: [], privateKey: nil)
        var trust: [X509Certificate] = []
        var rest = bytes[...]
        while !rest.isEmpty {
            guard rest.count >= 5, let tag = Tag(rawValue: rest[rest.startIndex]) else {
                throw Malformed(what: "an unknown field")
            }
            let length = rest.dropFirst().prefix(4).reduce(0) { $0 << 8 | Int($1) }
            rest = rest.dropFirst(5)
            guard length <= rest.count else { throw Malformed(what: "a field that is cut off") }
            let value = rest.prefix(length)
            rest = rest.dropFirst(length)
            switch tag {
            case .certificate:
                result.certificateChain.append(try X509Certificate(derRepresentation: Array(value)))
            case .trust:
                trust.append(try X509Certificate(derRepresentation: Array(value)))
            case .privateKey:
                guard result.privateKey == nil else { throw Malformed(what: "two private keys") }
                result.privateKey = SecretBytes(copying: value)
            case .attribute:
                guard let separator = value.firstIndex(of: 0) else { throw Malformed(what: "a nameless attribute") }
                let name = String(decoding: value[..<separator], as: UTF8.self)
                result.attributes[name] = String(decoding: value[(separator + 1)...], as: UTF8.self)
            }
        }
        guard !result.certificateChain.isEmpty else { throw Malformed(what: "no certificate") }
        result.trust = TrustBundle(trust)
        return result
    }
}

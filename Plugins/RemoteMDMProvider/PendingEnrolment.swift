import CertificateProviding

/// A key that a certificate was or is about to be asked for, as it rests in the identity store until there is one:
///
///     offset  size
///     0       1     format version, 2
///     1       1     whether the server has said that it has not decided yet
///     2       …     six fields, each with its size in 4 octets, big-endian, before it:
///                   key, PKCS#8; request, PKCS#10; of a key in a token its URI and its public key, DER;
///                   of the key in a token that it replaces the same two
///
/// What there is not, is empty. A record without octets is none.
struct PendingEnrolment: Sendable {
    let key: KeptKey
    /// DER; empty until it is made.
    var csr: [UInt8] = []
    var isUndecided = false
    /// The key in a token that is to be destroyed once the stored identity is that of ``key``.
    var replaced: KeptKey?

    private static let format: UInt8 = 2
    private static let fieldCount = 6

    init(key: KeptKey) { self.key = key }

    /// - Returns: `nil` for an empty record.
    /// - Throws: `storeReadFailed`.
    init?(_ record: SecretBytes) throws(CertificateProviderError) {
        guard !record.isEmpty else { return nil }
        guard let (isUndecided, fields) = Self.fields(of: record),
            let key = try Self.key(fields[0], fields[2], fields[3])
        else {
            throw CertificateProviderError(
                .storeReadFailed,
                "A pending enrolment in the store is damaged, or was written by a newer certprov; delete the identity to "
                    + "give it up.")
        }
        self.key = key
        self.isUndecided = isUndecided
        csr = fields[1].bytes
        replaced = try Self.key(SecretBytes(copying: []), fields[4], fields[5])
    }

    var encoded: SecretBytes {
        var fields = [SecretBytes(copying: []), SecretBytes(copying: csr)]
        switch key {
        case .sealed(let privateKey): fields = [privateKey, SecretBytes(copying: csr)] + Self.fields(of: nil)
        case .token: fields += Self.fields(of: key)
        }
        fields += Self.fields(of: replaced)
        let size = fields.reduce(2) { $0 + 4 + $1.count }
        return SecretBytes(count: size) { buffer in
            buffer[0] = Self.format
            buffer[1] = isUndecided ? 1 : 0
            var offset = 2
            for field in fields {
                for shift in [24, 16, 8, 0] {
                    buffer[offset] = UInt8(truncatingIfNeeded: field.count >> shift)
                    offset += 1
                }
                field.withUnsafeBytes { bytes in
                    UnsafeMutableRawBufferPointer(rebasing: buffer[offset..<offset + bytes.count])
                        .copyMemory(from: bytes)
                }
                offset += field.count
            }
        }
    }

    /// The URI and the public key of a key in a token.
    private static func fields(of key: KeptKey?) -> [SecretBytes] {
        guard case .token(let uri, let publicKey) = key else { return [[], []].map { SecretBytes(copying: $0) } }
        return [SecretBytes(copying: Array(uri.utf8)), SecretBytes(copying: publicKey.derRepresentation)]
    }

    private static func key(
        _ privateKey: SecretBytes, _ uri: SecretBytes, _ publicKey: SecretBytes
    ) throws(CertificateProviderError) -> KeptKey? {
        if !privateKey.isEmpty { return .sealed(privateKey) }
        guard !uri.isEmpty else { return nil }
        return .token(
            uri: String(decoding: uri.bytes, as: UTF8.self),
            publicKey: try PublicKeyInfo(derRepresentation: publicKey.bytes))
    }

    private static func fields(of record: SecretBytes) -> (isUndecided: Bool, [SecretBytes])? {
        record.withUnsafeBytes { bytes in
            guard bytes.count > 2, bytes[0] == Self.format else { return nil }
            var fields: [SecretBytes] = []
            var offset = 2
            while offset < bytes.count {
                guard fields.count < Self.fieldCount, bytes.count - offset >= 4 else { return nil }
                let size = bytes[offset..<offset + 4].reduce(0) { $0 << 8 | Int($1) }
                offset += 4
                guard size <= bytes.count - offset else { return nil }
                fields.append(SecretBytes(copying: UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + size])))
                offset += size
            }
            return fields.count == Self.fieldCount ? (bytes[1] != 0, fields) : nil
        }
    }
}

extension SecretBytes {
    /// For what is no secret.
    fileprivate var bytes: [UInt8] { withUnsafeBytes { Array($0) } }
}

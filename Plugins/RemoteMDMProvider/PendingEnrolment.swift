import CertificateProviding

/// A key and its request, as stored until the certificate is issued:
///
///     offset  size
///     0       1     format version, 2
///     1       1     whether the server has the request and has not decided yet
///     2       …     six fields, each after its size in 4 octets, big-endian:
///                   private key, PKCS#8; request, PKCS#10; URI and public key, DER, of a key in a token;
///                   URI and public key, DER, of the key in a token that it replaces
///
/// A missing field is empty.
struct PendingEnrolment: Sendable {
    let key: OwnedKey
    /// DER; empty until it is made.
    var csr: [UInt8] = []
    var isUndecided = false
    /// The key in a token that is to be destroyed as soon as the stored identity has ``key``.
    var replaced: OwnedKey?

    private static let format: UInt8 = 2
    private static let fieldCount = 6

    init(key: OwnedKey) { self.key = key }

    /// - Throws: `storeReadFailed`.
    init(_ record: SecretBytes) throws(CertificateProviderError) {
        guard record.withUnsafeBytes({ $0.first ?? 0 }) <= Self.format else {
            throw CertificateProviderError(
                .storeReadFailed,
                "The record of a pending enrolment in the store was written by a newer certprov; update certprov.")
        }
        guard let (isUndecided, fields) = Self.fields(of: record),
            let key = try Self.key(fields[0], fields[2], fields[3])
        else { throw Self.damaged }
        self.key = key
        self.isUndecided = isUndecided
        csr = fields[1].bytes
        replaced = try Self.key(SecretBytes(copying: []), fields[4], fields[5])
    }

    private static var damaged: CertificateProviderError {
        CertificateProviderError(
            .storeReadFailed,
            "The record of a pending enrolment in the store is damaged; delete the identity to discard it.",
            reason: .damaged)
    }

    var encoded: SecretBytes {
        var fields = [SecretBytes(copying: []), SecretBytes(copying: csr)]
        switch key {
        case .sealed(let privateKey): fields = [privateKey, SecretBytes(copying: csr)] + Self.fields(of: nil)
        case .stored: fields += Self.fields(of: key)
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
    private static func fields(of key: OwnedKey?) -> [SecretBytes] {
        guard let key = key?.reference else { return [[], []].map { SecretBytes(copying: $0) } }
        return [SecretBytes(copying: Array(key.uri.utf8)), SecretBytes(copying: key.publicKey.derRepresentation)]
    }

    private static func key(
        _ privateKey: SecretBytes, _ uri: SecretBytes, _ publicKey: SecretBytes
    ) throws(CertificateProviderError) -> OwnedKey? {
        if !privateKey.isEmpty { return .sealed(privateKey) }
        guard !uri.isEmpty else { return nil }
        guard let publicKey = try? PublicKeyInfo(derRepresentation: publicKey.bytes) else { throw damaged }
        return .stored(KeyReference(publicKey: publicKey, uri: String(decoding: uri.bytes, as: UTF8.self)))
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
    /// The bytes, for content that is not secret.
    fileprivate var bytes: [UInt8] { withUnsafeBytes { Array($0) } }
}

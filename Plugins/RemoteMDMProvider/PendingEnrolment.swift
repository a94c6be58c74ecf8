import CertificateProviding

/// A key that a certificate was or is about to be asked for, as it rests in the identity store until there is one:
///
///     offset  size
///     0       1     format version, 1
///     1       1     whether the server has said that it has not decided yet
///     2       4     size of the key, big-endian
///     6       n     key, PKCS#8
///     6+n     …     request, PKCS#10
///
/// A record without octets is none.
struct PendingEnrolment: Sendable {
    let privateKey: SecretBytes
    /// DER.
    let csr: [UInt8]
    var isUndecided = false

    private static let format: UInt8 = 1
    private static let headerSize = 6

    init(privateKey: SecretBytes, csr: [UInt8]) {
        self.privateKey = privateKey
        self.csr = csr
    }

    /// - Returns: `nil` for an empty record.
    /// - Throws: `storeReadFailed`.
    init?(_ record: SecretBytes) throws(CertificateProviderError) {
        guard !record.isEmpty else { return nil }
        let parts = record.withUnsafeBytes { bytes -> (SecretBytes, [UInt8], Bool)? in
            guard bytes.count > Self.headerSize, bytes[0] == Self.format else { return nil }
            let size = bytes[2..<6].reduce(0) { $0 << 8 | Int($1) }
            guard size > 0, size < bytes.count - Self.headerSize else { return nil }
            let end = Self.headerSize + size
            return (SecretBytes(copying: bytes[Self.headerSize..<end]), Array(bytes[end...]), bytes[1] != 0)
        }
        guard let parts else {
            throw CertificateProviderError(
                .storeReadFailed,
                "A pending enrolment in the store is damaged, or was written by a newer certprov; delete the identity to "
                    + "give it up.")
        }
        (privateKey, csr, isUndecided) = parts
    }

    var encoded: SecretBytes {
        privateKey.withUnsafeBytes { key in
            let header = [Self.format, isUndecided ? 1 : 0] + (0..<4).map { UInt8(key.count >> (24 - 8 * $0) & 0xff) }
            return SecretBytes(count: header.count + key.count + csr.count) { buffer in
                buffer.copyBytes(from: header + key + csr)
            }
        }
    }
}

import CertificateProviding

/// The certificate authorities that have authenticated a server, as stored in the identity store:
///
///     offset  size
///     0       1     format version, 1
///     1       32    SHA-256 of the trust configuration under which they were learnt
///     33      …     certificates: size in four bytes, big-endian, and DER
struct KnownAuthorities: Sendable, Equatable {
    /// The configuration under which they were learnt. They are ignored under another one, since the configuration
    /// takes precedence.
    let basis: [UInt8]
    let certificates: [X509Certificate]

    /// More roots than any server has.
    static let maximumCount = 16
    private static let format: UInt8 = 1
    private static let basisSize = 32

    init(basis: [UInt8], certificates: [X509Certificate]) {
        self.basis = basis
        self.certificates = Array(certificates.prefix(Self.maximumCount))
    }

    /// - Throws: `storeReadFailed`.
    init(_ record: SecretBytes) throws(CertificateProviderError) {
        guard let known = record.withUnsafeBytes({ Self.decoded(Array($0)) }) else {
            throw CertificateProviderError(
                .storeReadFailed,
                "The record of the server's authorities in the store is damaged, or was written by a newer certprov; "
                    + "delete the identity to learn them again.")
        }
        self = known
    }

    private static func decoded(_ bytes: [UInt8]) -> KnownAuthorities? {
        guard bytes.first == format, bytes.count > 1 + basisSize else { return nil }
        var rest = bytes.dropFirst(1 + basisSize)
        var certificates: [X509Certificate] = []
        while !rest.isEmpty {
            let size = rest.prefix(4).reduce(0) { $0 << 8 | Int($1) }
            guard rest.count >= 4, size > 0, size <= rest.count - 4, certificates.count < maximumCount,
                let certificate = try? X509Certificate(derRepresentation: rest.dropFirst(4).prefix(size))
            else { return nil }
            certificates.append(certificate)
            rest = rest.dropFirst(4 + size)
        }
        return KnownAuthorities(basis: Array(bytes[1..<(1 + basisSize)]), certificates: certificates)
    }

    var encoded: SecretBytes {
        var bytes = [Self.format] + basis
        for der in certificates.map(\.derRepresentation) {
            bytes += (0..<4).map { UInt8(der.count >> (24 - 8 * $0) & 0xff) }
            bytes += der
        }
        return SecretBytes(copying: bytes)
    }
}

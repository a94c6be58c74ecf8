import CertificateProviding
import FoundationEssentials

/// The certificate authorities that have authenticated a server, as stored in the identity store.
struct KnownAuthorities: Sendable, Equatable {
    /// SHA-256 of the trust configuration under which they were learnt. They are ignored under another one, since the
    /// configuration takes precedence.
    let basis: [UInt8]
    let certificates: [X509Certificate]

    /// More roots than any server has.
    static let maximumCount = 16

    private struct Contents: Codable {
        static let format = VersionedRecord<Self>(
            of: "the server's authorities in the store", ifDamaged: "delete the identity to learn them again")
        let basis: Data
        /// DER.
        let certificates: [Data]
    }

    init(basis: [UInt8], certificates: [X509Certificate]) {
        self.basis = basis
        self.certificates = Array(certificates.prefix(Self.maximumCount))
    }

    /// - Throws: `storeReadFailed`.
    init(_ record: SecretBytes) throws(ProviderError) {
        let contents = try Contents.format.content(of: record)
        let certificates = try? contents.certificates.map { try X509Certificate(derRepresentation: Array($0)) }
        guard let certificates else { throw Contents.format.damage }
        self.init(basis: Array(contents.basis), certificates: certificates)
    }

    func encoded() throws(ProviderError) -> SecretBytes {
        try Contents.format.record(
            of: Contents(basis: Data(basis), certificates: certificates.map { Data($0.derRepresentation) }))
    }
}

import CertificateProviding
import FoundationEssentials

/// The certificate authorities that have authenticated a server, as stored in the identity store. JSON.
struct KnownAuthorities: Sendable, Equatable {
    /// SHA-256 of the trust configuration under which they were learnt. They are ignored under another one, since the
    /// configuration takes precedence.
    let basis: [UInt8]
    let certificates: [X509Certificate]

    /// More roots than any server has.
    static let maximumCount = 16

    private struct Contents: Codable {
        static let version = 1
        var version = Self.version
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
        do {
            let contents = try JSONDecoder().decode(Contents.self, from: record.withUnsafeBytes { Data($0) })
            guard contents.version == Contents.version else { throw CocoaError(.fileReadCorruptFile) }
            self.init(
                basis: Array(contents.basis),
                certificates: try contents.certificates.map { try X509Certificate(derRepresentation: Array($0)) })
        } catch {
            throw ProviderError(
                .storeReadFailed,
                "The record of the server's authorities in the store is damaged, or was written by a newer certprov; "
                    + "delete the identity to learn them again.")
        }
    }

    func encoded() throws(ProviderError) -> SecretBytes {
        let contents = Contents(
            basis: Data(basis), certificates: certificates.map { Data($0.derRepresentation) })
        do { return SecretBytes(copying: try JSONEncoder().encode(contents)) } catch {
            throw ProviderError(
                .internal, "The record of the server's authorities cannot be encoded.", underlying: error)
        }
    }
}

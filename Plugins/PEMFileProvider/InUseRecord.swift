import CertificateProviding
import FoundationEssentials

/// The stored record of an identity in use. JSON. The identity itself stays in its files.
struct InUseRecord: Codable, Sendable {
    static let version = 1
    private(set) var version = Self.version
    /// For people who look at the store.
    let certificate: String

    init(certificate: String) { self.certificate = certificate }

    /// - Throws: `storeReadFailed`.
    static func check(_ record: SecretBytes) throws(CertificateProviderError) {
        guard let known = try? JSONDecoder().decode(Self.self, from: record.withUnsafeBytes { Data($0) }),
            known.version <= version
        else {
            throw CertificateProviderError(
                .storeReadFailed,
                "The record of the identity in the store is damaged, or was written by a newer certprov; update certprov, or "
                    + "delete the identity and fetch it again.")
        }
    }

    func encoded() throws(CertificateProviderError) -> SecretBytes {
        do { return SecretBytes(copying: try JSONEncoder().encode(self)) } catch {
            throw CertificateProviderError(
                .internal, "The record of the identity cannot be encoded.", underlying: error)
        }
    }
}

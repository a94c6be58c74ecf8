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
    static func check(_ record: SecretBytes) throws(ProviderError) {
        guard let known = try? JSONDecoder().decode(Self.self, from: record.withUnsafeBytes { Data($0) }),
            known.version <= version
        else {
            throw ProviderError(
                .storeReadFailed,
                "The record of the identity in the store is damaged, or was written by a newer certprov; update certprov, or "
                    + "delete the identity and fetch it again.")
        }
    }

    func encoded() throws(ProviderError) -> SecretBytes {
        do { return SecretBytes(copying: try JSONEncoder().encode(self)) } catch {
            throw ProviderError(
                .internal, "The record of the identity cannot be encoded.", underlying: error)
        }
    }
}

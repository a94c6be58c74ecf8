import CertificateProviding
import FoundationEssentials

/// The enrolment that has no certificate yet, as stored until its identity is. ``/CertificateProviding/OwnedKeys`` has the keys.
///
/// JSON. Not secret.
struct EnrolmentRecord: Codable, Sendable {
    static let version = 1
    private(set) var version = Self.version
    /// The key to be certified.
    let key: KeyReference
    /// DER; empty until it is made.
    var csr: [UInt8] = []
    /// Whether the server has the request and has not decided yet.
    var isUndecided = false
    /// The protocol's own.
    var state: [UInt8] = []

    init(key: KeyReference) { self.key = key }

    private struct Version: Decodable { let version: Int }

    /// - Throws: `storeReadFailed`.
    init(_ record: SecretBytes) throws(ProviderError) {
        let data = record.withUnsafeBytes { Data($0) }
        if let found = try? JSONDecoder().decode(Version.self, from: data), found.version > Self.version {
            throw ProviderError(
                .storeReadFailed,
                "The record of a pending enrolment in the store was written by a newer certprov; update certprov.")
        }
        guard let known = try? JSONDecoder().decode(Self.self, from: data) else {
            throw ProviderError(
                .storeReadFailed,
                "The record of a pending enrolment in the store is damaged; delete the identity to discard it.",
                reason: .damaged)
        }
        self = known
    }

    func encoded() throws(ProviderError) -> SecretBytes {
        do { return SecretBytes(copying: try JSONEncoder().encode(self)) } catch {
            throw ProviderError(.internal, "The enrolment's record cannot be encoded.", underlying: error)
        }
    }
}

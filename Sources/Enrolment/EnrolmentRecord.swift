import CertificateProviding

/// The enrolment that has no certificate yet, as stored until its identity is. ``/CertificateProviding/OwnedKeys`` has the keys.
///
/// Not secret.
struct EnrolmentRecord: Codable, Sendable {
    /// The key to be certified.
    let key: KeyReference
    /// DER; empty until it is made.
    var csr: [UInt8] = []
    /// Whether the server has the request and has not decided yet.
    var isPending = false
    /// The protocol's own.
    var state: [UInt8] = []

    init(key: KeyReference) { self.key = key }

    private static let format = VersionedRecord<Self>(
        of: "a pending enrolment in the store", ifDamaged: "delete the identity to discard it")

    /// - Throws: `storeReadFailed`.
    init(_ record: SecretBytes) throws(ProviderError) { self = try Self.format.content(of: record) }

    func encoded() throws(ProviderError) -> SecretBytes { try Self.format.record(of: self) }
}

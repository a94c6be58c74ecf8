import CertificateProviding

/// The stored record of an identity in use. The identity itself stays in its files.
struct InUseRecord: Codable, Sendable {
    static let format = VersionedRecord<Self>(
        of: "the identity in the store", ifDamaged: "delete the identity and fetch it again")

    /// For people who look at the store.
    let certificate: String
}

import CertificateProviding

/// The stored URL of the account. A server that wants an external account for each new one may want it for a look-up by key, too; the
/// URL needs none.
struct AccountPlace: Sendable {
    private let environment: ProviderEnvironment
    private let recordName: String

    init(_ settings: ACMESettings, _ environment: ProviderEnvironment) {
        self.environment = environment
        recordName = "url-\(settings.accountName)"
    }

    private struct Contents: Codable {
        static let format = VersionedRecord<Self>(
            of: "the account's URL in the store", ifDamaged: "the server is asked for it")
        /// The thumbprint of the account's key: another key has another account.
        let key: String
        let url: String
    }

    /// Returns the URL; `nil` if none is stored for this key. Blocks.
    ///
    /// - Throws: `storeReadFailed` for a record that a newer version has written. A damaged one names nothing.
    func url(ofKey thumbprint: String) throws(ProviderError) -> String? {
        var stored: SecretBytes?
        try environment.toleratingDamage(warns: false) { () throws(ProviderError) in
            stored = try environment.storage.record(named: recordName)
        }
        guard let stored, let known = try Contents.format.undamagedContent(of: stored), known.key == thumbprint else {
            return nil
        }
        return known.url
    }

    /// Blocks.
    func store(_ url: String, ofKey thumbprint: String) throws(ProviderError) {
        guard try self.url(ofKey: thumbprint) != url else { return }
        let encoded = try Contents.format.record(of: Contents(key: thumbprint, url: url))
        // A damaged one cannot be updated.
        try environment.storage.removeRecord(named: recordName)
        try environment.storage.updateRecord(named: recordName) { _ in encoded }
    }

    /// Blocks.
    func forget() throws(ProviderError) { try environment.storage.removeRecord(named: recordName) }
}

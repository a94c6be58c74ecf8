import CertificateProviding
import FoundationEssentials
import IdentityStore

/// The vault's record of the registration, in a part of the application's store that no provider has. Written before the
/// first request, and complete when the vault is created, which takes it in. So the application is registered exactly when
/// there is a vault.
struct ConnectionRecord: Codable, Sendable {
    private static let provider = ProviderID("registration_")
    private static let name = "connection"
    private static let format = VersionedRecord<Self>(
        of: "the registration", ifDamaged: "restore the vault from a backup")

    /// The connection's id: the one to ask for, or while registered the server's.
    var connectionID: String
    /// The user whom the id was chosen for: the certificate's subject and issuer, or the user's name.
    var principal: String?
    /// The place of the connection: the server's origin and the path before that of the resource.
    var place: String?
    /// The provider whose identity registered; `nil` for a password.
    var provider: String?
    var policy: String
    /// For requests with a password, which is a record of its own.
    var username: String?
    /// Whether the server has rejected the password since it was set.
    var isPasswordRejected: Bool?
    /// Whether the server has removed the connection, so that identity and vault are to go.
    var isLeft: Bool?

    static let damaged = ProviderError(
        .storeReadFailed,
        "The vault has no valid record of the connection; restore the vault from a backup. If there is none, run 'certprov unregister "
            + "--force', and register again: the server keeps the connection.")

    static func otherPlace(_ registered: String, _ configured: String) -> String {
        "The application was registered at \(registered), and the configuration names \(configured); restore Host, Port, HTTPS, "
            + "URLSuffix and FarmID, or run: certprov unregister --force"
    }

    /// Returns the record; `nil` if there is none.
    ///
    /// - Throws: `storeReadFailed`, also for a record that a newer version has written; `vaultLocked`.
    static func read(from vault: DataVault) throws(ProviderError) -> ConnectionRecord? {
        do throws(ProviderError) {
            return try decoded(try storage(of: vault).record(named: name))
        } catch {
            var error = error
            if error.reason == .damaged { error.message += " " + withoutBackup }
            throw error
        }
    }

    private static let withoutBackup =
        "If there is no backup, run: certprov unregister --force. The server keeps the connection then."

    private static func decoded(_ record: SecretBytes?) throws(ProviderError) -> ConnectionRecord? {
        guard let record else { return nil }
        return try format.content(of: record)
    }

    /// Replaces the record. It is on disk when the function returns.
    func write(to vault: DataVault) throws(ProviderError) {
        let content = try encoded()
        try Self.storage(of: vault).updateRecord(named: Self.name) { _ in content }
    }

    /// Creates the vault with this record and the password in it and nowhere else.
    func createVault(
        _ vault: DataVault, passcode: SecretBytes?, password: SecretBytes?, terms: VaultTerms, factor: SecretBytes?
    ) throws(ProviderError) {
        var records = [Self.name: try encoded()]
        records[Self.password] = password
        if try Self.storage(of: vault).record(named: RejectedSecrets.recordName) != nil {
            // Without one of its own, the vault would take that in.
            records[RejectedSecrets.recordName] = try RejectedSecrets().record()
        }
        try vault.create(passcode: passcode, records: records, of: Self.provider, terms: terms, factor: factor)
    }

    /// Removes what an attempt to register has left.
    static func forget(in vault: DataVault) throws(ProviderError) {
        let storage = storage(of: vault)
        for name in [name, password, RejectedSecrets.recordName] {
            guard try storage.record(named: name) != nil else { continue }
            try storage.updateRecord(named: name) { _ in SecretBytes(copying: []) }
        }
    }

    private func encoded() throws(ProviderError) -> SecretBytes { try Self.format.record(of: self) }

    // MARK: - Passwords

    private static let password = "password"

    /// The part of the vault, or before the registration of the application's store, with the passwords that the server has rejected or
    /// not answered, each with what it was sent for.
    static func storage(of vault: DataVault) -> any IdentityStorage { vault.storage(for: provider) }

    /// Returns the password of the registered user; `nil` for a registration with a certificate.
    static func password(in vault: DataVault) throws(ProviderError) -> SecretBytes? {
        try storage(of: vault).record(named: password)
    }

    static func write(password new: SecretBytes, to vault: DataVault) throws(ProviderError) {
        try storage(of: vault).updateRecord(named: password) { _ in new }
    }

    /// Notes whether the server has rejected a password, unless the vault has another one by now. In one step: requests and
    /// other processes change the record as well.
    static func write(
        isRejected: Bool, _ secret: SecretBytes, to vault: DataVault
    ) throws(ProviderError) {
        try storage(of: vault).updateRecord(named: name) { content throws(ProviderError) in
            guard var record = try decoded(content), try password(in: vault) == secret else { return nil }
            record.isPasswordRejected = isRejected ? true : nil
            return try record.encoded()
        }
    }
}

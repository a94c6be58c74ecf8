public import CertificateProviding
import FoundationEssentials
import Synchronization

/// The identity store of this host: fetched identities, encrypted with the store's key.
///
///     $STATE_DIRECTORY/.lock                       taken by writers
///     $STATE_DIRECTORY/store.key                   the sealing key, unless a credential provides it
///     $STATE_DIRECTORY/identities/<provider>/<entry>
///
/// Several processes may use it at once. A reader takes no lock and sees the old or the new entry, never a part.
public final class IdentityStore: Sendable {
    /// The maximum size of an entry in bytes; no chain with a key comes near it.
    static let maximumEntrySize = 1 << 20

    let path: String
    let files: FileSystem
    let lockTimeout: Duration
    private let keySource: any SealingKeySource
    private let openedKey = Mutex<SealingKey?>(nil)

    /// Creates a store in `path`. The directory is created at the first write. A relative path is resolved against the
    /// current directory now.
    /// - Parameter keySource: The source of the sealing key; `nil` for a key file in the store's directory.
    public convenience init(path: String, keySource: (any SealingKeySource)? = nil) {
        self.init(path: path, keySource: keySource, files: FileSystem())
    }

    init(
        path: String, keySource: (any SealingKeySource)?, files: FileSystem,
        lockTimeout: Duration = StoreLock.timeout
    ) {
        self.path = path.hasPrefix("/") ? path : "\(FileManager.default.currentDirectoryPath)/\(path)"
        self.files = files
        self.lockTimeout = lockTimeout
        self.keySource = keySource ?? KeyFile(path: self.path, files: files)
    }

    /// Returns the default store of this user on this host, sealed with the credential
    /// ``SystemdCredentialKey/credentialName`` if it exists. It is in the first of these directories that is set:
    ///
    /// - `$STATE_DIRECTORY` (systemd.exec(5), `StateDirectory=`)
    /// - `$XDG_STATE_HOME/certprov`
    /// - `~/.local/state/certprov`, the default of the XDG Base Directory Specification, except for root
    /// - `/var/lib/certprov`
    ///
    /// - Throws: `configurationInvalid` for a credential that is not a valid key, or for an unusable directory in the
    ///   environment.
    public static func standard(secrets: SecretReader) throws(CertificateProviderError) -> IdentityStore {
        IdentityStore(path: try StateDirectory.path(), keySource: try SystemdCredentialKey(secrets: secrets))
    }

    /// Returns one provider's part of the store.
    public func storage(for provider: ProviderID) -> any IdentityStorage {
        ProviderStorage(store: self, provider: provider)
    }

    /// Returns the key that decrypts entries; `nil` if there is none.
    func keyForOpening() throws(CertificateProviderError) -> SealingKey? {
        if let key = openedKey.withLock({ $0 }) { return key }
        return try keySource.existingKey().map(remember)
    }

    /// Returns the key that encrypts entries; `nil` if there is none. Call it with the lock held.
    ///
    /// Asks the source each time: if the directory was removed, a cached key would encrypt an entry that no other
    /// process, nor this one after a restart, could decrypt.
    func existingKeyForSealing() throws(CertificateProviderError) -> SealingKey? {
        try keySource.existingKey().map(remember)
    }

    /// Creates the key that encrypts entries. Call it with the lock held, and only if no entry is sealed with a lost
    /// key.
    func newKeyForSealing() throws(CertificateProviderError) -> SealingKey { remember(try keySource.keyForSealing()) }

    /// Drops the cached key: another process may have created one, or an administrator may have restored one.
    func forgetKey() { openedKey.withLock { $0 = nil } }

    private func remember(_ material: SecretBytes) -> SealingKey {
        let key = SealingKey(material)
        openedKey.withLock { $0 = key }
        return key
    }
}

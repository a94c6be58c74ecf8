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
    /// Throws if the application's vault has taken in this store. Called with the lock held, before a change and when an entry
    /// is not found.
    let requireCurrent: @Sendable () throws(ProviderError) -> Void
    private struct Opened {
        var key: SealingKey?
        /// How often it was forgotten: one that was read before that is not remembered.
        var generation = 0
    }
    private let opened = Mutex(Opened())

    /// Creates a store in `path`. The directory is created at the first write. A relative path is resolved against the
    /// current directory now.
    ///
    /// The sealing key is in a file of that directory.
    public convenience init(path: String) { self.init(path: path, keySource: nil) }

    /// - Parameter keySource: The source of the sealing key; `nil` for a key file in the store's directory.
    package convenience init(path: String, keySource: (any SealingKeySource)?) {
        self.init(path: path, keySource: keySource, files: FileSystem())
    }

    init(
        path: String, keySource: (any SealingKeySource)?, files: FileSystem,
        lockTimeout: Duration = StoreLock.timeout,
        requireCurrent: @escaping @Sendable () throws(ProviderError) -> Void = {}
    ) {
        self.path = path.hasPrefix("/") ? path : "\(FileManager.default.currentDirectoryPath)/\(path)"
        self.files = files
        self.lockTimeout = lockTimeout
        self.requireCurrent = requireCurrent
        self.keySource = keySource ?? KeyFile(path: self.path, files: files)
    }

    /// Returns the default store of this user on this host, sealed with the credential
    /// `certprov-store-key` if it exists. It is in the first of these directories that is set:
    ///
    /// - `$STATE_DIRECTORY` (systemd.exec(5), `StateDirectory=`)
    /// - `$XDG_STATE_HOME/certprov`
    /// - `~/.local/state/certprov`, the default of the XDG Base Directory Specification, except for root
    /// - `/var/lib/certprov`
    ///
    /// - Throws: `configurationInvalid` for a credential that is not a valid key, or for an unusable directory in the
    ///   environment.
    public static func standard(secrets: SecretReader) throws(ProviderError) -> IdentityStore {
        IdentityStore(path: try StateDirectory.path(), keySource: try SystemdCredentialKey(secrets: secrets))
    }

    /// Returns one provider's part of the store.
    public func storage(for provider: ProviderID) -> any IdentityStorage {
        ProviderStorage(store: self, provider: provider)
    }

    /// Returns one provider's part of the store. The entries that it stores name the property file.
    ///
    /// - Parameters:
    ///   - propertyFile: A relative path is resolved against the current directory now.
    ///   - onRead: Gets the ``StoreEntry/path`` of each entry that is asked for.
    package func storage(
        for provider: ProviderID, storedWith propertyFile: String?, onRead: (@Sendable (String) -> Void)? = nil
    ) -> any IdentityStorage {
        ProviderStorage(
            store: self, provider: provider, propertyFile: propertyFile.map(RegularFile.absolute), onRead: onRead)
    }

    /// Returns the key that decrypts entries; `nil` if there is none.
    func keyForOpening() throws(ProviderError) -> SealingKey? {
        let (key, generation) = opened.withLock { ($0.key, $0.generation) }
        if let key { return key }
        return try keySource.existingKey().map { remember($0, generation) }
    }

    /// Returns the key that encrypts entries; `nil` if there is none. Call it with the lock held.
    ///
    /// Asks the source each time: if the directory was removed, a cached key would encrypt an entry that no other
    /// process, nor this one after a restart, could decrypt.
    func existingKeyForSealing() throws(ProviderError) -> SealingKey? {
        let generation = opened.withLock(\.generation)
        return try keySource.existingKey().map { remember($0, generation) }
    }

    /// Creates the key that encrypts entries. Call it with the lock held, and only if no entry is sealed with a lost
    /// key.
    func newKeyForSealing() throws(ProviderError) -> SealingKey {
        let generation = opened.withLock(\.generation)
        return remember(try keySource.keyForSealing(), generation)
    }

    /// Drops the cached key: another process may have created one, or an administrator may have restored one.
    func forgetKey() { opened.withLock { $0 = Opened(key: nil, generation: $0.generation + 1) } }

    private func remember(_ material: SecretBytes, _ generation: Int) -> SealingKey {
        let key = SealingKey(material)
        opened.withLock { if $0.generation == generation { $0.key = key } }
        return key
    }
}

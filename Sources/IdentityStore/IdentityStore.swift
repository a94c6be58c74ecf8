public import CertificateProviding
import FoundationEssentials
import Synchronization

/// This host's sealed storage of fetched identities.
///
///     $STATE_DIRECTORY/.lock                       taken by writers
///     $STATE_DIRECTORY/store.key                   the sealing key, unless a credential gives one
///     $STATE_DIRECTORY/identities/<provider>/<entry>
///
/// Several processes may use it at once. A reader takes no lock and sees the old or the new entry, whole.
public final class IdentityStore: Sendable {
    /// No chain and key come near; what is larger was not written here.
    static let maximumEntrySize = 1 << 20

    let path: String
    let files: FileSystem
    let lockTimeout: Duration
    let now: @Sendable () -> ContinuousClock.Instant
    private let keySource: any SealingKeySource
    private let openedKey = Mutex<SealingKey?>(nil)

    /// A store in `path`, which is made when something is first written. A relative path is taken from the directory in
    /// which the process is now, wherever it goes later.
    /// - Parameter keySource: `nil` for a key file in the store's own directory.
    public convenience init(path: String, keySource: (any SealingKeySource)? = nil) {
        self.init(path: path, keySource: keySource, files: FileSystem())
    }

    init(
        path: String, keySource: (any SealingKeySource)?, files: FileSystem,
        lockTimeout: Duration = StoreLock.timeout,
        now: @escaping @Sendable () -> ContinuousClock.Instant = { .now }
    ) {
        self.path = path.hasPrefix("/") ? path : "\(FileManager.default.currentDirectoryPath)/\(path)"
        self.files = files
        self.lockTimeout = lockTimeout
        self.now = now
        self.keySource = keySource ?? KeyFile(path: self.path, files: files)
    }

    /// The store of this user on this host: in ``StateDirectory/path()``, sealed with the
    /// credential ``SystemdCredentialKey/credentialName`` where there is one.
    ///
    /// - Throws: `configurationInvalid` when the credential is there and is no key, or when the environment names no
    ///   usable directory.
    public static func standard(secrets: SecretReader) throws(CertificateProviderError) -> IdentityStore {
        IdentityStore(path: try StateDirectory.path(), keySource: try SystemdCredentialKey(secrets: secrets))
    }

    /// Returns the part of the store that belongs to one provider.
    public func storage(for provider: ProviderID) -> any IdentityStorage {
        ProviderStorage(store: self, provider: provider)
    }

    /// Returns the key that opens entries, or `nil` when there is none.
    func keyForOpening() throws(CertificateProviderError) -> SealingKey? {
        if let key = openedKey.withLock({ $0 }) { return key }
        return try keySource.existingKey().map(remember)
    }

    /// Returns the key that seals entries, where there is one. Under the lock.
    ///
    /// Asks the source every time: where the directory was removed meanwhile, a key that is only remembered would seal
    /// an entry that no other process, and not this one after a restart, could open.
    func existingKeyForSealing() throws(CertificateProviderError) -> SealingKey? {
        try keySource.existingKey().map(remember)
    }

    /// Makes the key that seals entries. Under the lock, and only where nothing is sealed with a key that is lost.
    func newKeyForSealing() throws(CertificateProviderError) -> SealingKey { remember(try keySource.keyForSealing()) }

    /// Looks the key up anew: another process may have made one, or a person may have restored one.
    func forgetKey() { openedKey.withLock { $0 = nil } }

    private func remember(_ material: SecretBytes) -> SealingKey {
        let key = SealingKey(material)
        openedKey.withLock { $0 = key }
        return key
    }
}

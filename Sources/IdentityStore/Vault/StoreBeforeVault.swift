import CertificateProviding

/// The store of an application before it has a vault, which takes in its entries.
struct StoreBeforeVault: Sendable {
    let store: IdentityStore
    let files: VaultFiles

    /// Throws if the application has stored something whose key is lost: it may be restored.
    func requireReadable() throws(ProviderError) {
        store.forgetKey()
        guard try store.keyForOpening() == nil else { return }
        for parent in [ProviderStorage.parent, ProviderStorage.records] {
            for provider in try files.names(in: "\(store.path)/\(parent)")
            where try !files.names(in: "\(store.path)/\(parent)/\(provider)").isEmpty {
                throw ProviderError(
                    .storeReadFailed,
                    "The vault is not created: the key of \(store.path) is missing, and identities there are sealed with it. "
                        + "Restore the key, or remove \(store.path).")
            }
        }
    }

    /// Copies everything. Entries that the vault has already stay.
    func copy(into sealed: IdentityStore) throws(ProviderError) {
        store.forgetKey()
        // The key is removed first, when everything is taken in.
        guard try store.keyForOpening() != nil else { return }
        for parent in [ProviderStorage.parent, ProviderStorage.records] {
            for provider in try files.names(in: "\(store.path)/\(parent)") {
                guard let id = ProviderID(rawValue: provider) else { continue }
                let (from, to) = (
                    ProviderStorage(store: store, provider: id), ProviderStorage(store: sealed, provider: id)
                )
                for name in try files.names(in: "\(store.path)/\(parent)/\(provider)") {
                    guard let content = try from.content(named: name, in: parent) else { continue }
                    try to.changing(name) { root throws(ProviderError) in
                        guard try to.content(named: name, in: parent) == nil else { return }
                        try to.write(content, name, in: parent, root)
                    }
                }
            }
        }
    }

    /// Keeps writers waiting; `nil` if the store does not exist.
    ///
    /// - Parameter creating: Whether the store is created if it does not exist, as a writer does while there is no vault.
    func lock(creating: Bool = false) throws(ProviderError) -> StoreLock? {
        do throws(SafeDirectory.Refusal) {
            let directory =
                creating ? try SafeDirectory.create(store.path, files.files) : try SafeDirectory.open(store.path)
            return try directory.map { directory throws(SafeDirectory.Refusal) in
                try StoreLock(in: directory, timeout: files.lockTimeout, files.files)
            }
        } catch { throw files.unwritable(error) }
    }

    /// Removes the store, its key first.
    func remove(from directory: SafeDirectory) throws(ProviderError) {
        do throws(SafeDirectory.Refusal) {
            guard let inner = try directory.directory("store") else { return }
            try inner.remove(KeyFile.name, files.files)
            try inner.flush(files.files)
            try directory.removeTree("store", files.files)
            try directory.flush(files.files)
        } catch { throw files.unwritable(error) }
    }
}

import Synchronization

/// The key stores of one provider's keys: the configured one, which makes new keys, and those of keys that were made under
/// an earlier configuration.
package final class KeyStoreSet: Sendable {
    /// The key store that makes new keys.
    package let configured: any KeyStore
    private let stores: KeyStores
    /// The stores that were made for other keys: each has connections and logins of its own.
    private let others = Mutex<[any KeyStore]>([])

    /// Creates the set. Makes no store yet.
    ///
    /// - Parameters:
    ///   - configured: The value of the provider's parameter.
    ///   - stores: Makes the others: ``ProviderEnvironment/keyStores``.
    package init(_ configured: any KeyStore, and stores: KeyStores) {
        self.configured = configured
        self.stores = stores
    }

    /// Whether a key is in the key store that is configured now. Another one may be lost, and must not block a deletion or
    /// a renewal.
    package func isConfigured(_ key: KeyReference) -> Bool { configured.holds(keyURI: key.uri) }

    /// Returns the key store of a key. Does no I/O for a built-in store; a plugin may have to be started and asked, which blocks
    /// for a bounded time: a task calls it on ``ProviderEnvironment/executor``.
    ///
    /// - Throws: `configurationInvalid` for a URI that no installed store knows, or that its store cannot read.
    package func store(of key: KeyReference) throws(ProviderError) -> any KeyStore {
        if isConfigured(key) { return configured }
        if let known = others.withLock(\.self).first(where: { $0.holds(keyURI: key.uri) }) { return known }
        let new = try stores.store(key.uri)
        others.withLock { $0.append(new) }
        return new
    }

    /// Shuts all of them down (``KeyStore/shutdown()``).
    package func shutdown() async {
        for store in [configured] + others.withLock(\.self) { await store.shutdown() }
    }
}

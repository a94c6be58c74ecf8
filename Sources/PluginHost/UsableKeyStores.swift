import CertificateProviding

/// The key stores of this host that a plugin may use: those that its parameters name, and places in other installed ones.
///
/// A URI that the configuration does not have must not have a query component (RFC 3986, section 3.4): for a token, that chooses
/// the library that this process loads and the file that is sent as the PIN.
final class UsableKeyStores: Sendable {
    private let configured: [String: any KeyStore]
    private let all: KeyStores
    /// The values of the plugin's parameters, and the descriptions of the sources of secrets among them.
    private let texts: Set<String>
    private let sources: Set<String>
    private struct Other {
        let uri: String
        let pinSource: String?
        let store: any KeyStore
    }
    private let others = BlockingMutex<[Other]>([])

    /// The number of other key stores that stay open. Keys hold their own.
    private static let maximum = 64

    /// - Parameter configured: By their URIs.
    init(_ configured: [String: any KeyStore], in all: KeyStores, texts: Set<String>, sources: Set<String>) {
        (self.configured, self.all, self.texts, self.sources) = (configured, all, texts, sources)
    }

    /// Returns the key store of a place or of a key. Asks a plugin, if it is one's, for a bounded time.
    ///
    /// - Throws: `operationNotAllowed` for a place that the plugin must not choose, and as ``KeyStores/store(_:pinSource:parameter:)``.
    func store(
        _ uri: String, pinSource: String? = nil, parameter: String? = nil
    ) throws(ProviderError) -> any KeyStore {
        if pinSource == nil {
            if let known = configured[uri] { return known }
            if let known = configured.values.first(where: { $0.holds(keyURI: uri) }) { return known }
        }
        guard !uri.contains("?") || texts.contains(uri) else { throw Self.notConfigured }
        let source = try pinSource.map { text throws(ProviderError) in
            guard let source = SecretSource(text), sources.contains(source.description) else {
                throw HostServices.unknownSource
            }
            return source
        }
        let known = others.withLock(\.self).filter { $0.pinSource == pinSource }
        if let known = known.first(where: { $0.uri == uri || $0.store.holds(keyURI: uri) }) { return known.store }
        let store = try all.store(uri, pinSource: source, parameter: parameter)
        others.withLock { others in
            others.append(Other(uri: uri, pinSource: pinSource, store: store))
            if others.count > Self.maximum { others.removeFirst() }
        }
        return store
    }

    /// Permits the URI of an identity in one of the stores. A store gives each of its keys the query component of its own URI.
    ///
    /// - Throws: `operationNotAllowed` for one with a query component that the configuration does not have.
    func permit(_ uri: String) throws(ProviderError) {
        let query = uri.drop { $0 != "?" }
        guard query.isEmpty || texts.contains(where: { $0.drop { $0 != "?" } == query }) else {
            throw Self.notConfigured
        }
    }

    private static let notConfigured = ProviderError(
        .operationNotAllowed,
        "The plugin asked for a key store URI with a query ('?…'). Only the property file may set one. Give the plugin a "
            + "parameter of the type key-store, and set it to this URI.")

    func shutdown() async {
        for store in Array(configured.values) + others.withLock({ $0.map(\.store) }) { await store.shutdown() }
    }
}

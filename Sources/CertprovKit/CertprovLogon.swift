// One import is the purpose of this product. The attribute is the only way to pass on what the types here are made of;
// CertprovKitTests compile a service with this import alone.
@_exported public import CertificateProviding
@_exported public import CertificateTLS
package import FoundationEssentials
@_exported public import IdentityStore
public import Logging
@_exported public import Logon
import PKCS12FileProvider
import PluginHost
import RemoteMDMProvider
@_exported public import Renewal
public import ServiceLifecycle
import Synchronization

#if PKCS11
    import PKCS11TokenProvider
#endif

/// A service's identity for mutual TLS, from a property file to rotating credentials.
///
///     let logon = try CertprovLogon(configuredBy: "clienthub.properties")
///     let credentials = try await logon.credentials()
///     let configuration = try TLSConfiguration.makeClientConfiguration(
///         presenting: credentials, trusting: logon.trustAnchors)
///     // … and logon.renewal among the services of the program.
///
/// It has all built-in providers and key stores, those that the service adds, the plugins of this host, and its identity store. Make
/// ``LogonManager``, ``RotatingTLSCredentials`` and ``RenewingIdentity`` by hand to choose among them.
public final class CertprovLogon: Sendable {
    /// The manager behind this object.
    public let manager: LogonManager
    private let logger: Logger
    private let now: @Sendable () -> Date
    private let starting = Mutex<Task<Result<Started, CertificateProviderError>, Never>?>(nil)

    private struct Started: Sendable {
        let credentials: RotatingTLSCredentials
        let renewal: RenewingIdentity
    }

    /// Reads the property file. Blocks on the file system; neither a server nor a token is contacted.
    ///
    /// - Parameters:
    ///   - path: A `.properties` file or a property list.
    ///   - providers: Further providers that the file may name, besides the built-in ones.
    ///   - keyStores: Further key stores, whose URIs parameters may have.
    ///   - logger: Gets warnings about the file, and the results of renewals.
    /// - Throws: `configurationMissing`, `configurationInvalid`, which names the line, and errors of this host's store.
    public convenience init(
        configuredBy path: String, adding providers: [ProviderDescriptor] = [], keyStores: [KeyStoreDescriptor] = [],
        logger: Logger = Logger(label: "certprov")
    ) throws(CertificateProviderError) {
        let secrets = SecretReader()
        try self.init(
            configuredBy: path, adding: providers, keyStores: keyStores, logger: logger, secrets: secrets,
            store: try IdentityStore.standard(secrets: secrets))
    }

    package init(
        configuredBy path: String, adding providers: [ProviderDescriptor] = [], keyStores: [KeyStoreDescriptor] = [],
        logger: Logger, secrets: SecretReader, store: IdentityStore,
        now: @escaping @Sendable () -> Date = { Date() }
    ) throws(CertificateProviderError) {
        let (providers, keyStores) = (Self.providers + providers, Self.keyStores + keyStores)
        let plugins = PluginHost(builtIn: providers, builtInKeyStores: keyStores, logger: logger) {
            store.storage(for: Self.pluginStorage)
        }
        let registry = try ProviderRegistry(providers, keyStores: keyStores, source: plugins)
        let configuration = try LogonConfiguration.load(path: path, registry: registry)
        for warning in configuration.warnings { logger.warning("\(warning)") }
        let executor = BlockingExecutor.threads()
        self.logger = logger
        self.now = now
        manager = try LogonManager(configuration: configuration, registry: registry) { id in
            ProviderEnvironment(
                storage: store.storage(for: id), secrets: secrets, logger: logger, now: now, executor: executor)
        }
    }

    /// Where the descriptions of plugins are cached, for the command too. No plugin may have a name that ends so.
    private static let pluginStorage = ProviderID("plugins_")

    /// The built-in providers.
    public static var providers: [ProviderDescriptor] {
        #if PKCS11
            [PKCS12FileProvider.descriptor, PKCS11TokenProvider.descriptor, RemoteMDMProvider.descriptor]
        #else
            [PKCS12FileProvider.descriptor, RemoteMDMProvider.descriptor]
        #endif
    }

    /// The built-in key stores.
    public static var keyStores: [KeyStoreDescriptor] {
        #if PKCS11
            [SealedKeyStore.descriptor, TokenKeyStore.descriptor]
        #else
            [SealedKeyStore.descriptor]
        #endif
    }

    /// The trust anchors of `TrustAnchors` in the property file; without it, the system trust store.
    public var trustAnchors: TrustAnchors { manager.configuration.trustAnchors.map(TrustAnchors.pemFile) ?? .system }

    /// Returns the credentials of the identity: the stored one, or a new one if none is stored, or the stored one has
    /// expired or cannot be used with TLS. Later calls return the same credentials, which ``renewal`` keeps fresh.
    ///
    /// Prompts for nothing.
    ///
    /// - Throws: Errors of the provider, such as `interactionRequired` where a PIN has no source; `unsupportedAlgorithm` for
    ///   an identity that TLS cannot use.
    public func credentials() async throws(CertificateProviderError) -> RotatingTLSCredentials {
        try await start().credentials
    }

    /// The service that renews the identity in time, and shuts the provider down at its end. List it before the services
    /// that use the credentials: a service group ends its services in reverse order.
    public var renewal: some Service { Renewal(logon: self) }

    /// Returns the object behind ``renewal``: the current identity, its updates, and a renewal on demand.
    ///
    /// - Throws: As ``credentials()``.
    public func renewingIdentity() async throws(CertificateProviderError) -> RenewingIdentity {
        try await start().renewal
    }

    private struct Renewal: Service {
        let logon: CertprovLogon
        func run() async throws { await (try await logon.start()).renewal.run() }
    }

    /// One start for all callers, since a manager does one thing at a time.
    private func start() async throws(CertificateProviderError) -> Started {
        let task = starting.withLock { starting in
            if let starting { return starting }
            let new = Task { await Result { () async throws(CertificateProviderError) in try await begin() } }
            starting = new
            return new
        }
        let result = await task.value
        // The next call tries again.
        if case .failure = result { starting.withLock { $0 = $0 == task ? nil : $0 } }
        return try result.get()
    }

    private func begin() async throws(CertificateProviderError) -> Started {
        let first = try await firstCredentials()
        let credentials = RotatingTLSCredentials(first)
        return Started(
            credentials: credentials,
            renewal: RenewingIdentity(
                first.identity, of: manager, environment: RenewalEnvironment(logger: logger),
                install: credentials.update(to:)))
    }

    private func firstCredentials() async throws(CertificateProviderError) -> TLSCredentials {
        let stored = try await manager.storedIdentity()
        if let stored, stored.certificate.status(at: now()) != .expired {
            do throws(CertificateProviderError) { return try TLSCredentials(stored) } catch {
                logger.warning(
                    "the stored identity is not used", metadata: ["code": "\(error.code)", "reason": "\(error)"])
            }
        }
        return try TLSCredentials(try await manager.obtainIdentity(NoUserInteraction()))
    }
}

extension Result {
    /// The outcome of `body`.
    fileprivate init(_ body: () async throws(Failure) -> Success) async {
        do throws(Failure) { self = .success(try await body()) } catch { self = .failure(error) }
    }
}

public import CertificateProviding
public import CertificateTLS
import FoundationEssentials
import IdentityStore
public import Logging
import Logon
import PKCS12FileProvider
public import Renewal

/// The identity of this service: loaded once, presented in every handshake, replaced while connections go on.
public struct ServiceIdentity: Sendable {
    /// What servers and clients are configured with.
    public let credentials: RotatingTLSCredentials
    /// The service that keeps the identity fresh, to be run among the others. A failure is no reason for it to stop:
    /// the present identity is good until it expires, and it tries again.
    public let renewal: RenewingIdentity

    /// Loads the identity that a property file describes: the stored one, or else a new one from the provider.
    public init(
        configuredBy file: String, reportingTo serviceManager: ServiceManager, logger: Logger
    ) async throws(CertificateProviderError) {
        // The only place that knows which providers there are. More of them: more descriptors here.
        let registry = try ProviderRegistry([PKCS12FileProvider.descriptor])
        let configuration = try LogonConfiguration.load(path: file, registry: registry)
        for warning in configuration.warnings { logger.warning("\(warning)") }

        let secrets = SecretReader()
        let store = try IdentityStore.standard(secrets: secrets)
        let executor = BlockingExecutor.threads()
        let manager = try LogonManager(configuration: configuration, registry: registry) { id in
            ProviderEnvironment(storage: store.storage(for: id), secrets: secrets, logger: logger, executor: executor)
        }

        let first: TLSCredentials
        if let stored = try Self.usableStoredIdentity(of: manager, logger: logger) {
            first = stored
        } else {
            first = try TLSCredentials(try await manager.obtainIdentity(NoUserInteraction()))
        }
        let credentials = RotatingTLSCredentials(first)
        self.credentials = credentials
        renewal = RenewingIdentity(first.identity, of: manager, environment: RenewalEnvironment(logger: logger)) {
            identity throws(CertificateProviderError) in
            try await credentials.update(to: identity)
            serviceManager.notify(.ready, status: "Presenting \(identity.certificate.summary)")
        }
    }

    /// Returns the stored identity, or nil when there is none or it cannot be used: a better one may have been put into
    /// the provider's file while the service was down, and the store does not look by itself.
    private static func usableStoredIdentity(
        of manager: LogonManager, logger: Logger
    ) throws(CertificateProviderError) -> TLSCredentials? {
        guard let identity = try manager.storedIdentity(), identity.certificate.status(at: Date()) != .expired else {
            return nil
        }
        do throws(CertificateProviderError) {
            return try TLSCredentials(identity)
        } catch {
            // A renewal stores what the provider gave before TLS has seen it.
            logger.warning(
                "the stored identity is not used", metadata: ["code": "\(error.code)", "reason": "\(error)"])
            return nil
        }
    }

    /// What the next handshake presents.
    public var certificate: X509Certificate { credentials.current.identity.certificate }
}

public import CertprovKit
public import Logging
public import ServiceLifecycle

/// The identity of this service: loaded once, presented in every handshake, replaced while connections go on.
public struct ServiceIdentity: Sendable {
    /// What servers and clients are configured with.
    public let credentials: RotatingTLSCredentials
    private let renewing: RenewingIdentity
    private let serviceManager: ServiceManager

    /// Loads the identity that a property file describes: the stored one, or else a new one from the provider.
    public init(
        configuredBy file: String, reportingTo serviceManager: ServiceManager, logger: Logger
    ) async throws(CertificateProviderError) {
        let logon = try CertprovLogon(configuredBy: file, logger: logger)
        credentials = try await logon.credentials()
        renewing = try await logon.renewingIdentity()
        self.serviceManager = serviceManager
    }

    /// What the next handshake presents.
    public var certificate: X509Certificate { credentials.current.identity.certificate }

    /// Asks the provider for a new identity now.
    public func renew() async throws(CertificateProviderError) { try await renewing.renew() }

    /// The service that keeps the identity fresh, to be run among the others. A failure is no reason for it to stop:
    /// the present identity is good until it expires, and it tries again.
    public var renewal: some Service { Renewal(identity: self) }

    private struct Renewal: Service {
        let identity: ServiceIdentity

        func run() async throws {
            await withTaskGroup(of: Void.self) { tasks in
                tasks.addTask { await identity.renewing.run() }
                // Ends with the renewal.
                for await update in identity.renewing.updates where update.certificate == identity.certificate {
                    identity.serviceManager.notify(.ready, status: "Presenting \(update.certificate.summary)")
                }
            }
        }
    }
}

public import CertprovKit
public import Logging
public import ServiceLifecycle

/// The identity of this service, and the peers that it trusts: both change while connections go on.
public struct ServiceIdentity: Sendable {
    /// What servers and clients make their TLS with.
    public let tls: RotatingTLS
    private let logon: CertprovLogon
    private let renewing: RenewingIdentity
    private let serviceManager: ServiceManager

    /// Loads what a property file describes: the stored identity, or else a new one from the provider, and the CAs of the peers.
    public init(
        configuredBy file: String, reportingTo serviceManager: ServiceManager, logger: Logger
    ) async throws(ProviderError) {
        let logon = try CertprovLogon(configuredBy: file, logger: logger)
        (self.logon, tls, renewing) = (logon, try await logon.tls(), try await logon.renewingIdentity())
        self.serviceManager = serviceManager
    }

    /// What the next handshake presents.
    public var certificate: X509Certificate { tls.identity.certificate }

    /// Asks the provider for a new identity now.
    public func renew() async throws(ProviderError) { try await renewing.renew() }

    /// The service that keeps identity and trust fresh, to be run among the others. A failure is no reason for it to stop:
    /// the present identity is good until it expires, and it tries again.
    public var renewal: some Service { Renewal(identity: self) }

    private struct Renewal: Service {
        let identity: ServiceIdentity

        func run() async throws {
            try await withThrowingTaskGroup(of: Void.self) { tasks in
                tasks.addTask { try await identity.logon.renewal.run() }
                // Ends with the renewal.
                for await update in identity.renewing.updates where update.certificate == identity.certificate {
                    identity.serviceManager.notify(.ready, status: "Presenting \(update.certificate.summary)")
                }
                try await tasks.waitForAll()
            }
        }
    }
}

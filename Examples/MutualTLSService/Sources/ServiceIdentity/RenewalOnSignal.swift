import CertificateProviding
public import Logging
public import ServiceLifecycle
import UnixSignals

/// Renews the identity whenever the process is sent a SIGHUP. `systemctl reload` does that.
public struct RenewalOnSignal: Service {
    private let identity: ServiceIdentity
    private let signals: UnixSignalsSequence
    private let serviceManager: ServiceManager
    private let logger: Logger

    /// Begins to catch SIGHUP, which would otherwise end the process; ``run()`` then acts on it.
    public init(of identity: ServiceIdentity, reportingTo serviceManager: ServiceManager, logger: Logger) async {
        self.identity = identity
        self.signals = await UnixSignalsSequence(trapping: .sighup)
        self.serviceManager = serviceManager
        self.logger = logger
    }

    public func run() async {
        for await _ in signals.cancelOnGracefulShutdown() {
            serviceManager.notify(.reloading)
            do throws(CertificateProviderError) {
                try await identity.renew()
                let certificate = identity.certificate
                logger.notice("identity renewed", metadata: certificate.logMetadata)
                serviceManager.notify(.ready, status: "Presenting \(certificate.summary)")
            } catch {
                // Not a reason to stop: the present identity is good until it expires, and a person can try again.
                logger.error(
                    "renewal failed, the present identity stays",
                    metadata: ["code": "\(error.code)", "reason": "\(error)"])
                serviceManager.notify(.ready, status: "Presenting \(identity.certificate.summary); renewal: \(error)")
            }
        }
        serviceManager.notify(.stopping)
    }
}

import CertprovKit
public import ServiceLifecycle
import UnixSignals

/// Renews the identity whenever the process is sent a SIGHUP, whether that is due or not. `systemctl reload` does that.
public struct RenewalOnSignal: Service {
    private let identity: ServiceIdentity
    private let signals: UnixSignalsSequence
    private let serviceManager: ServiceManager

    /// Begins to catch SIGHUP, which would otherwise end the process; ``run()`` then acts on it.
    public init(of identity: ServiceIdentity, reportingTo serviceManager: ServiceManager) async {
        self.identity = identity
        self.signals = await UnixSignalsSequence(trapping: .sighup)
        self.serviceManager = serviceManager
    }

    public func run() async {
        for await _ in signals.cancelOnGracefulShutdown() {
            serviceManager.notify(.reloading)
            do throws(ProviderError) {
                try await identity.renew()
            } catch {
                // Logged already, and tried again when it is due.
                serviceManager.notify(.ready, status: "Presenting \(identity.certificate.summary); renewal: \(error)")
            }
        }
        serviceManager.notify(.stopping)
    }
}

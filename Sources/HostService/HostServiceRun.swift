package import CertificateProviding
import Logging
import ServiceLifecycle
import Synchronization
package import UnixSignals

extension HostService {
    /// Runs until a signal. SIGHUP reads everything again; another one ends the service, and a second one does so at once.
    ///
    /// - Parameter limit: How long the end waits for attempts in progress, and for open connections.
    /// - Throws: The error of ``run()``.
    package func run(
        until signals: some AsyncSequence<UnixSignal, Never> & Sendable, limit: Duration
    ) async throws(ProviderError) {
        var configuration = ServiceGroupConfiguration(
            services: [.init(service: self)],
            logger: Logger(label: "certprov.lifecycle") { _ in SwiftLogNoOpLogHandler() })
        configuration.maximumGracefulShutdownDuration = limit
        let group = ServiceGroup(configuration: configuration)
        // On the threads for all, and not on the main one.
        let running = Task.detached { try await group.run() }
        let isEnding = Mutex(false)
        let handling = Task.detached {
            for await signal in signals {
                if signal == .sighup {
                    self.reread()
                } else if isEnding.withLock({ state in
                    defer { state = true }
                    return state
                }) {
                    running.cancel()
                } else {
                    await group.triggerGracefulShutdown()
                }
            }
        }
        defer { handling.cancel() }
        if case .failure(let error) = await running.result, !isEnding.withLock(\.self) || error is ProviderError {
            throw error as? ProviderError ?? ProviderError(.internal, "The service has ended.", underlying: error)
        }
    }
}

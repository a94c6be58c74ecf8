import CertificateProviding
import Logging
import Synchronization

/// A provider that a manager has made. Managers that replace one another share those whose parameters are the same.
final class MadeProvider: Sendable {
    let provider: any CertificateProvider
    private let environment: ProviderEnvironment
    /// For its calls that block.
    var executor: BlockingExecutor { environment.executor }
    var logger: Logger { environment.logger }
    /// The directories of its part of the store.
    var entryDirectories: [String] { environment.storage.entryDirectories }
    /// By its parameter `renew-at`.
    let renewalPolicy: RenewalPolicy
    /// Whether another provider has taken its place, and it was not shut down yet.
    private let isLeft = Mutex(false)

    /// - Throws: Errors of `environment`, and of the provider about its parameters.
    init(
        _ configured: ConfiguredProvider, _ registry: ProviderRegistry, _ keyStores: KeyStores,
        in environment: @escaping ProviderRegistry.Surroundings
    ) throws(ProviderError) {
        renewalPolicy = RenewalPolicy(point: try configured.parameters.renewalPoint(provider: configured.id))
        (provider, self.environment) = try registry.provider(
            configured.id, configured.parameters, keyStores, in: environment)
    }

    /// Lets the provider be shut down with the last manager that has it. One that was not replaced is shut down by its program,
    /// which may use a key for longer than the manager.
    func replace() { isLeft.withLock { $0 = true } }

    func shutdown() async {
        isLeft.withLock { $0 = false }
        await provider.shutdown()
    }

    deinit {
        guard isLeft.withLock(\.self) else { return }
        Task { [provider] in await provider.shutdown() }
    }
}

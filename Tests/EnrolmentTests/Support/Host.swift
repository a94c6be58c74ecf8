import CertificateProviding
import Enrolment
import IdentityStore
import ProviderTransport
import Synchronization
import TestSupport
import Testing

/// A host with a provider for the invented server.
struct Host {
    let server: InventedServer
    let memory: InMemoryStorage
    let log = TestLog()
    let waits = Waits()
    let environment: ProviderEnvironment

    /// The pauses of a clock that stands until a task waits, which goes on at once.
    final class Waits: Sendable {
        let all = Mutex<[Duration]>([])
        var sum: Duration { all.withLock { $0.reduce(.zero, +) } }
    }

    /// - Parameter storage: In front of the memory.
    init(
        server: InventedServer? = nil, power: Power = Power(), memory: InMemoryStorage = InMemoryStorage(),
        storage: (any IdentityStorage)? = nil, keyStores: [(KeyStoreDescriptor, any IdentityStorage)] = [],
        draw: Double = 0.5
    ) throws {
        self.server = try server ?? InventedServer()
        self.memory = memory
        let (start, waits) = (ContinuousClock.now, self.waits)
        let policy = RetryPolicy(
            now: { start + waits.sum }, sleep: { length in waits.all.withLock { $0.append(length) } }, random: { draw })
        var environment = ProviderEnvironment.testing(
            storage: storage ?? HookedStorage(memory) { _, _ throws(ProviderError) in try power.spend() },
            variables: ["PASS": "open sesame"], keyStores: keyStores, transport: Transport(retryPolicy: policy))
        environment.logger = log.logger
        self.environment = environment
    }

    /// - Parameter change: To the plan of the configuration.
    func provider(
        needsKeyFirst: Bool = false, key: String = "store:", _ change: (inout EnrolmentPlan) -> Void = { _ in }
    ) throws -> EnrollingProvider {
        let parameters = ["subject": "CN=host17,O=certprov tests", "pass": "env:PASS", "key": key]
        let made = try InventedProvider.descriptor(server, needsKeyFirst: needsKeyFirst).makeProvider(
            environment, ProviderParameters(parameters.mapValues { .init($0) }))
        let provider = try #require(made as? EnrollingProvider)
        var plan = provider.plan
        change(&plan)
        return EnrollingProvider(provider.id, provider.server, plan, environment)
    }

    func keys() async throws -> [String?] {
        try await environment.keyStores.store("store:").list().map { $0.reference.uri }
    }
}

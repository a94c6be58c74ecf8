import ACMEProvider
import CertificateProviding
import Enrolment
import Foundation
import ProviderTransport
import Synchronization
import TestSupport

/// A host with a server in memory, a clock that a test turns, and a document root.
final class Host: Sendable {
    let server: ACMEServer
    let memory: InMemoryStorage
    let log = TestLog()
    let directory: TemporaryDirectory
    /// How far the wall clock is ahead.
    let ahead = Mutex<TimeInterval>(0)
    /// The pauses that the client has made.
    let pauses = Mutex<[Duration]>([])
    private let clock = Mutex(ContinuousClock.now)
    private let variables: [String: String]

    init(variables: [String: String] = [:]) throws {
        self.variables = variables
        directory = try TemporaryDirectory()
        memory = InMemoryStorage()
        let root = directory.path
        server = try ACMEServer(documentRoot: root)
    }

    /// The names of the records in the store.
    var records: [String] { (try? memory.recordNames()) ?? [] }

    /// The files of challenges that are left.
    var challenges: [String] {
        (try? FileManager.default.contentsOfDirectory(atPath: directory.path + "/.well-known/acme-challenge")) ?? []
    }

    func environment(_ storage: (any IdentityStorage)? = nil) -> ProviderEnvironment {
        var environment = ProviderEnvironment.testing(
            storage: storage ?? memory, variables: variables, transport: Transport(network: server.network))
        environment.logger = log.logger
        environment.now = { Date() + self.ahead.withLock(\.self) }
        environment.transport.retryPolicy = RetryPolicy(
            now: { self.clock.withLock(\.self) },
            sleep: { length in
                self.pauses.withLock { $0.append(length) }
                self.clock.withLock { $0 += length }
            })
        return environment
    }

    func provider(
        _ changes: [String: String?] = [:], in environment: ProviderEnvironment? = nil
    ) throws(ProviderError) -> EnrollingProvider {
        var parameters: [String: String] = [
            "directory": server.directoryURL, "identifiers": "dns:host.example", "http-root": directory.path,
        ]
        for (name, value) in changes { parameters[name] = value }
        let made = try ACMEProvider.descriptor.makeProvider(
            environment ?? self.environment(), ProviderParameters(parameters.mapValues { .init($0) }))
        guard let provider = made as? EnrollingProvider else {
            throw ProviderError(.internal, "another type")
        }
        return provider
    }
}
